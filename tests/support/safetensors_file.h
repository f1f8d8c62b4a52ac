// Safetensors files made by hand, right or wrong, for tests of those who read them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tessera::test {

// Length, header and data as they are given; nothing is checked.
inline std::string safetensors_file(std::string_view header, std::string_view data) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return file.append(header).append(data);
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace tessera::test
