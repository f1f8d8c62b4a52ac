// The sum over ranks on the CPU: always in the order of the ranks, so that an element's bits do not
// depend on how many others are summed with it, nor on the rank that sums.
#pragma once

#include <cstdint>

#include "tessera/tensor.h"

namespace tessera::parallel {

// out[i] = parts[0][i] + parts[1][i] + ...; part r begins at parts + r * stride elements. f32, f16
// or bf16, summed in f32. `out` may be one of the parts.
void ordered_sum(DType dtype, const void* parts, std::int64_t stride, int count, std::int64_t n,
                 void* out);

}  // namespace tessera::parallel
