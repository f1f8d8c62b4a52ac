#include "server/token_text.h"

#include <array>
#include <string_view>

namespace tessera::server {
namespace {

constexpr std::string_view kNoCharacter = "\xef\xbf\xbd";  // U+FFFD

}  // namespace

std::string token_text(const Tokenizer& tokenizer, std::int32_t id) {
  if (id < 0 || id >= tokenizer.vocab_size()) return {};
  // Decoders may drop a space in front of a text, but not in the middle of one.
  const std::string first = tokenizer.decode(std::array{id});
  const std::string both = tokenizer.decode(std::array{id, id});
  std::string text = both.starts_with(first) ? both.substr(first.size()) : first;
  if (text.find(kNoCharacter) != std::string::npos) return std::string(tokenizer.token(id));
  return text;
}

}  // namespace tessera::server
