// How long a text is for a client.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace tessera::server {

// Characters (code points) of valid UTF-8.
inline std::int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

}  // namespace tessera::server
