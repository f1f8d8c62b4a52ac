// Dropout, as attention and the norms have it.
#pragma once

#include <cstdint>

namespace tessera {

// Counter-based: whether an element is dropped depends on the seed and on its place alone (Philox
// 4x32-10; src/core/philox.h), on no order, tile size or device, so that a backward pass can repeat
// it. What is kept is divided by 1 - p.
struct Dropout {
  float p = 0.f;  // in [0, 1)
  std::uint64_t seed = 0;
};

}  // namespace tessera
