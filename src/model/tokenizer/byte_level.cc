#include "model/tokenizer/byte_level.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <system_error>

#include "model/tokenizer/unicode.h"

namespace tessera::model {
namespace {

// The characters above 0xFF stand for the 68 bytes that are not printable in Latin-1.
constexpr char32_t kFirstStandIn = 0x100;
constexpr std::size_t kCharacters = kFirstStandIn + 68;

constexpr bool is_printable(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr auto kCharacterOf = [] {
  std::array<char32_t, 256> table{};
  char32_t stand_in = kFirstStandIn;
  for (unsigned byte = 0; byte < 256; ++byte) {
    table[byte] = is_printable(byte) ? byte : stand_in++;
  }
  return table;
}();

constexpr auto kByteOf = [] {
  std::array<std::int16_t, kCharacters> table{};
  table.fill(-1);
  for (unsigned byte = 0; byte < 256; ++byte) {
    table[kCharacterOf[byte]] = static_cast<std::int16_t>(byte);
  }
  return table;
}();

}  // namespace

void append_byte_level(std::string& to, std::string_view bytes) {
  for (const char byte : bytes) append_utf8(to, kCharacterOf[static_cast<unsigned char>(byte)]);
}

std::optional<std::string> byte_level_bytes(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (c >= kCharacters || kByteOf[c] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kByteOf[c]));
  }
  return bytes;
}

std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  unsigned value = 0;
  const char* const digits = token.data() + 3;
  const auto [end, error] = std::from_chars(digits, digits + 2, value, 16);
  if (error != std::errc() || end != digits + 2) return std::nullopt;
  return static_cast<char>(value);
}

}  // namespace tessera::model
