// Random f32 matrices in host memory, the same on every run.
#pragma once

#include <cstdint>

#include "core/philox.h"
#include "tessera/buffer.h"

namespace tessera {

// Roughly normal with this standard deviation: a sum of four uniform numbers.
inline Buffer random_matrix(std::int64_t rows, std::int64_t cols, std::uint64_t seed,
                            float deviation = 1.f) {
  Buffer buffer(DType::f32, {rows, cols});
  float* values = static_cast<float*>(buffer.data());
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    float sum = -2.f;
    for (std::uint32_t word : philox(seed, {static_cast<std::uint32_t>(i), 0, 0, 0})) {
      sum += static_cast<float>(word) * 0x1p-32f;
    }
    values[i] = deviation * 1.7f * sum;
  }
  return buffer;
}

}  // namespace tessera
