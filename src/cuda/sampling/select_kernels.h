// The kernels of argmax() and top_k() on a GPU (select_kernels.cu), and how rows are cut.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "core/rows.h"
#include "tessera/select.h"

namespace tessera::cuda {

// Rows of a tensor, all of them or some: row i is row picked[i] of x. Numbers outside x mean row 0.
struct PickedRows {
  Rows x;
  std::int64_t count;
  const std::int32_t* picked = nullptr;

  explicit PickedRows(const Tensor& tensor) : x(tensor), count(x.rows()) {}
  PickedRows(const Tensor& tensor, const Tensor& rows)
      : x(tensor), count(rows.numel()), picked(rows.ptr<const std::int32_t>()) {}

  TESSERA_HOST_DEVICE std::int64_t rows() const { return count; }
  TESSERA_HOST_DEVICE std::int64_t cols() const { return x.cols(); }
  template <typename T>
  TESSERA_HOST_DEVICE const T* row(std::int64_t i) const {
    if (picked == nullptr) return x.row<const T>(i);
    const std::int64_t at = picked[i];
    return x.row<const T>(at >= 0 && at < x.rows() ? at : 0);
  }
};

inline constexpr std::int64_t kPartElements = 4096;     // of a row that is cut into parts
inline constexpr std::int64_t kMostInTwoPasses = 1024;  // k beyond it takes k passes

inline std::int64_t select_parts_of(std::int64_t width) {
  return (width + kPartElements - 1) / kPartElements;
}

// Finds the k largest of each row (of this dtype), one block for each row. values: none for argmax.
void select_rows(Context& ctx, const char* op, DType dtype, const PickedRows& x, std::int64_t k,
                 const Tensor& values, const Tensor& indices);

// The same with one block for each part, and then one for each row. `found` has room for k keys of
// each part of each row.
void select_parts(Context& ctx, const char* op, DType dtype, const PickedRows& x, std::int64_t k,
                  unsigned long long* found, const Tensor& values, const Tensor& indices);

}  // namespace tessera::cuda
