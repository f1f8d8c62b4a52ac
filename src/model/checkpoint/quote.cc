#include "model/checkpoint/quote.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace tessera::model {
namespace {

unsigned byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

bool is_continuation(unsigned byte) { return (byte & 0xc0u) == 0x80u; }

// How many bytes of the text from here on are one character that a terminal prints; 0: none are.
std::size_t printed_bytes(std::string_view text, std::size_t i) {
  const unsigned first = byte_at(text, i);
  if (first < 0x80) return first < 0x20 || first == 0x7f ? 0 : 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  if (length == 0 || first > 0xf4 || i + length > text.size()) return 0;
  for (std::size_t k = 1; k < length; ++k) {
    if (!is_continuation(byte_at(text, i + k))) return 0;
  }
  const bool is_control = first == 0xc2 && byte_at(text, i + 1) < 0xa0;  // U+0080 to U+009F
  return is_control ? 0 : length;
}

std::string escaped(std::string_view text, std::string_view with_backslash) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = printed_bytes(text, i);
    if (length == 0) {
      out += fmt::format("\\x{:02x}", byte_at(text, i));
    } else {
      if (with_backslash.find(text[i]) != std::string_view::npos) out += '\\';
      out += text.substr(i, length);
    }
    i += std::max<std::size_t>(length, 1);
  }
  return out;
}

}  // namespace

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMaxShown = 80;  // a longer name would hide the rest of the sentence
  std::size_t shown = text.size();
  if (shown > kMaxShown) {
    shown = kMaxShown;
    while (shown > 0 && is_continuation(byte_at(text, shown))) --shown;
  }
  return '"' + escaped(text.substr(0, shown), "\"\\") + (shown < text.size() ? "...\"" : "\"");
}

std::string printable(std::string_view text) { return escaped(text, ""); }

}  // namespace tessera::model
