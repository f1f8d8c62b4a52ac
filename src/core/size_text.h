// Sizes of memory as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

// "13.52 GiB", "12.3 MiB", "0.5 KiB"
std::string size_text(std::int64_t bytes);

}  // namespace tessera
