// Tensors whose rows kernels read 16 bytes at a time.
#pragma once

#include <cstdint>

#include "tessera/tensor.h"

namespace tessera::cuda {

// Whether every row begins on a multiple of 16 bytes.
inline bool rows_begin_on_vectors(const Tensor& tensor) {
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % 16 != 0) return false;
  for (int d = 0; d + 1 < tensor.rank; ++d) {
    const bool aligned = tensor.strides[d] * size_of(tensor.dtype) % 16 == 0;
    if (tensor.shape[d] > 1 && !aligned) return false;
  }
  return true;
}

}  // namespace tessera::cuda
