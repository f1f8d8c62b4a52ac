// Tensors with one stride from row to row: nearly all tensors of models.
#pragma once

#include <cstdint>
#include <optional>

#include "core/host_device.h"
#include "tessera/tensor.h"

namespace tessera::cuda {

// The tensor as [rows, width], if no two rows overlap.
inline std::optional<Tensor> as_matrix(const Tensor& tensor) {
  const std::int64_t width = tensor.size(-1);
  std::int64_t rows = 1, stride = width;
  for (int d = tensor.rank - 2; d >= 0; --d) {
    if (tensor.shape[d] == 1) continue;
    if (rows == 1) {
      stride = tensor.strides[d];
    } else if (tensor.strides[d] != rows * stride) {
      return std::nullopt;
    }
    rows *= tensor.shape[d];
  }
  if (stride < width) return std::nullopt;
  const std::int64_t shape[] = {rows, width}, strides[] = {stride, 1};
  return Tensor(tensor.data, tensor.dtype, shape, strides, tensor.device);
}

// A matrix in a kernel.
struct MatrixRows {
  void* data = nullptr;
  std::int64_t stride = 0;

  MatrixRows() = default;
  // From a tensor that is a matrix, or from an undefined one.
  explicit MatrixRows(const Tensor& tensor) {
    if (!tensor.defined()) return;
    data = tensor.data;
    stride = as_matrix(tensor)->strides[0];
  }
  template <typename T>
  TESSERA_HOST_DEVICE T* row(std::int64_t i) const {
    return static_cast<T*>(data) + i * stride;
  }
};

}  // namespace tessera::cuda
