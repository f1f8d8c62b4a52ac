// Hexadecimal digits that nobody can guess: for the ids of answers and the nonce of the page.
#pragma once

#include <fmt/format.h>

#include <random>
#include <string>

namespace tessera::server {

// Eight digits for each word.
inline std::string random_hex(int words) {
  std::random_device device;
  std::string digits;
  for (int i = 0; i < words; ++i) digits += fmt::format("{:08x}", device());
  return digits;
}

}  // namespace tessera::server
