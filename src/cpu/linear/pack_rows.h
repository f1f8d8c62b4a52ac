// x as rows of f32, padded with zeros: the form that kernels for few rows read.
#pragma once

#include <cstdint>

#include "core/checked.h"
#include "cpu/linear/kernels.h"

namespace tessera::cpu {

// Elements from one packed row to the next: whole blocks of weights (32), and as many vectors as a
// kernel takes at a time (four of sixteen).
inline std::int64_t packed_row_stride(std::int64_t depth) { return checked_align(depth, 64); }

inline float* packed_row(const PackedInput& x, std::int64_t row) {
  return reinterpret_cast<float*>(x.data) + row * packed_row_stride(x.depth);
}

inline std::int64_t packed_rows_bytes(std::int64_t rows, std::int64_t depth) {
  return checked_mul(checked_mul(rows, packed_row_stride(depth)), sizeof(float));
}

void pack_rows(const Rows& x, DType dtype, std::int64_t row, std::int64_t rows, PackedInput& to);

}  // namespace tessera::cpu
