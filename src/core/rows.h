// A tensor seen as rows of its last dimension, for ops that work row by row.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "tessera/tensor.h"

namespace tessera {

// [d0, d1, ..., n] with any strides of the leading dimensions -> rows() rows of cols() elements.
class Rows {
 public:
  explicit Rows(const Tensor& tensor)
      : base_(static_cast<char*>(tensor.data)), item_(size_of(tensor.dtype)) {
    if (tensor.rank == 0) return;
    cols_ = tensor.shape[tensor.rank - 1];
    rows_ = 1;
    // Merges neighbouring dimensions that one stride describes; most tensors end up with one.
    for (int d = 0; d < tensor.rank - 1; ++d) {
      const std::int64_t size = tensor.shape[d], stride = tensor.strides[d] * item_;
      rows_ *= size;
      if (size == 1) continue;
      if (dims_ > 0 && strides_[dims_ - 1] == size * stride) {
        sizes_[dims_ - 1] *= size;
        strides_[dims_ - 1] = stride;
      } else {
        sizes_[dims_] = size;
        strides_[dims_++] = stride;
      }
    }
  }

  TESSERA_HOST_DEVICE std::int64_t rows() const { return rows_; }
  TESSERA_HOST_DEVICE std::int64_t cols() const { return cols_; }

  // Whether all rows are the same number of bytes apart; if so, that number.
  bool evenly_spaced() const { return dims_ <= 1; }
  std::int64_t step_bytes() const { return dims_ == 0 ? 0 : strides_[0]; }

  template <typename T>
  TESSERA_HOST_DEVICE T* row(std::int64_t i) const {
    if (dims_ == 1) return reinterpret_cast<T*>(base_ + i * strides_[0]);
    std::int64_t offset = 0;
    for (int d = dims_ - 1; d >= 0; --d) {
      offset += (i % sizes_[d]) * strides_[d];
      i /= sizes_[d];
    }
    return reinterpret_cast<T*>(base_ + offset);
  }

 private:
  char* base_;
  std::int64_t item_;
  std::int64_t rows_ = 0, cols_ = 0;
  int dims_ = 0;
  std::int64_t sizes_[kMaxRank] = {}, strides_[kMaxRank] = {};  // strides in bytes
};

}  // namespace tessera
