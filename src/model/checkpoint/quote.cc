#include "model/checkpoint/quote.h"

#include <fmt/format.h>

#include <cstddef>

namespace tessera::model {

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMaxShown = 80;  // a name that is longer would bury the sentence
  std::size_t shown = text.size();
  if (shown > kMaxShown) {
    shown = kMaxShown;
    // Continuation bytes of UTF-8 are 10xxxxxx: never cut before one.
    while (shown > 0 && (static_cast<unsigned char>(text[shown]) & 0xc0u) == 0x80u) --shown;
  }
  std::string out = "\"";
  for (const char c : text.substr(0, shown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  out += shown < text.size() ? "...\"" : "\"";
  return out;
}

}  // namespace tessera::model
