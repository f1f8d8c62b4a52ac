// The kernels of argmax() and top_k() on a GPU (select_kernels.cu), and how rows are cut.
#pragma once

#include <cstdint>

#include "tessera/select.h"

namespace tessera::cuda {

inline constexpr std::int64_t kPartElements = 4096;     // of a row that is cut into parts
inline constexpr std::int64_t kMostInTwoPasses = 1024;  // k beyond it takes k passes

inline std::int64_t select_parts_of(std::int64_t width) {
  return (width + kPartElements - 1) / kPartElements;
}

// Finds the k largest of each row, one block for each row. values: none for argmax.
void select_rows(Context& ctx, const char* op, const Tensor& elements, std::int64_t k,
                 const Tensor& values, const Tensor& indices);

// The same with one block for each part, and then one for each row. `found` has room for k keys of
// each part of each row.
void select_parts(Context& ctx, const char* op, const Tensor& elements, std::int64_t k,
                  unsigned long long* found, const Tensor& values, const Tensor& indices);

}  // namespace tessera::cuda
