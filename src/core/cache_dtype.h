// In which dtypes a cache may keep keys and values.
#pragma once

#include "tessera/dtype.h"

namespace tessera {

// Whether keys and values of `computed` may be stored as `stored`: the same, or half of f32.
constexpr bool can_store(DType stored, DType computed) {
  return stored == computed ||
         (computed == DType::f32 && (stored == DType::f16 || stored == DType::bf16));
}

}  // namespace tessera
