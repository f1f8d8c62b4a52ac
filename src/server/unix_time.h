// The clock of the API's "created".
#pragma once

#include <chrono>
#include <cstdint>

namespace tessera::server {

inline std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace tessera::server
