#include "server/token_text.h"

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "model/tokenizer/byte_level.h"

namespace tessera::server {
namespace {

constexpr std::string_view kNoCharacter = "\xef\xbf\xbd";  // U+FFFD

// Nothing for a part of a character.
std::optional<std::string> own_text(const Tokenizer& tokenizer, std::int32_t id) {
  // Decoders may drop a space in front of a text, but not in the middle of one.
  const std::string first = tokenizer.decode(std::array{id});
  const std::string both = tokenizer.decode(std::array{id, id});
  std::string text = both.starts_with(first) ? both.substr(first.size()) : first;
  if (text.find(kNoCharacter) != std::string::npos) return std::nullopt;
  return text;
}

bool is_token(const Tokenizer& tokenizer, std::int32_t id) {
  return id >= 0 && id < tokenizer.vocab_size();
}

}  // namespace

std::string token_text(const Tokenizer& tokenizer, std::int32_t id) {
  if (!is_token(tokenizer, id)) return {};
  return own_text(tokenizer, id).value_or(std::string(tokenizer.token(id)));
}

std::string token_bytes(const Tokenizer& tokenizer, std::int32_t id) {
  if (!is_token(tokenizer, id)) return {};
  if (auto text = own_text(tokenizer, id)) return *std::move(text);
  const std::string_view spelled = tokenizer.token(id);
  if (const auto byte = model::fallback_byte(spelled)) return {*byte};
  return model::byte_level_bytes(spelled).value_or(std::string(spelled));
}

}  // namespace tessera::server
