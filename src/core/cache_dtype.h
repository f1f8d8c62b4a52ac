// In which dtypes a cache may keep keys and values.
#pragma once

#include "tessera/dtype.h"

namespace tessera {

// Codes of 8 bits, with a scale for each token and head.
constexpr bool has_scales(DType stored) { return stored == DType::f8e4m3 || stored == DType::i8; }

// Whether keys and values of `computed` may be stored as `stored`: the same, half of f32, or 8
// bits.
constexpr bool can_store(DType stored, DType computed) {
  return stored == computed || has_scales(stored) ||
         (computed == DType::f32 && (stored == DType::f16 || stored == DType::bf16));
}

}  // namespace tessera
