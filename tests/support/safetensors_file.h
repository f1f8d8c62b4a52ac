// Safetensors files made by hand, valid or not, for tests of readers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tessera::test {

// Writes length, header and data as given. Nothing is checked.
inline std::string safetensors_file(std::string_view header, std::string_view data) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return file.append(header).append(data);
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace tessera::test
