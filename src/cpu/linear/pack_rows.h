// Packs x as rows of f32, padded with zeros: the form that kernels for few tokens read.
#pragma once

#include <cstdint>

#include "core/checked.h"
#include "cpu/linear/kernels.h"

namespace tessera::cpu {

// Elements from one packed row to the next: whole blocks of weights (32), and whole groups of the
// vectors that a kernel takes at a time (four of sixteen).
inline std::int64_t packed_row_stride(std::int64_t k_size) { return checked_align(k_size, 64); }

inline float* packed_row(const PackedInput& x, std::int64_t m) {
  return reinterpret_cast<float*>(x.data) + m * packed_row_stride(x.k_size);
}

inline std::int64_t packed_rows_bytes(std::int64_t m_size, std::int64_t k_size) {
  return checked_mul(checked_mul(m_size, packed_row_stride(k_size)), sizeof(float));
}

void pack_rows(const Rows& x, DType dtype, std::int64_t m0, std::int64_t m_size, PackedInput& to);

}  // namespace tessera::cpu
