// Rounding float64 to the element types, to nearest, ties to even.
#pragma once

#include "reference/array.h"
#include "tessera/dtype.h"

namespace tessera::reference {

// Rounds to f32, f16 or bf16. It goes through f32, so it is exact for f32. For f16 and bf16 it is
// exact if x is a sum or product of two such numbers, because f32 has more than twice their bits.
double rounded(double x, DType dtype);
Array rounded(Array x, DType dtype);

}  // namespace tessera::reference
