// Dropout, as used by attention and the norms.
//
// Threads: a value, as safe as an int.
#pragma once

#include <cstdint>

namespace tessera {

// Counter-based (Philox 4x32-10; src/core/philox.h): whether an element is dropped depends only on
// the seed and on the element's place, not on order, tile size or device. A backward pass can
// therefore repeat it. Elements that are kept are divided by 1 - p.
struct Dropout {
  float p = 0.f;  // in [0, 1)
  std::uint64_t seed = 0;
};

}  // namespace tessera
