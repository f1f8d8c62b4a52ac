#pragma once

#include <vector>

#include "reference/array.h"
#include "tessera/dropout.h"
#include "tessera/dtype.h"

namespace tessera::reference {

// x with what norm_dropout_words() names dropped, and the rest divided by 1 - p and rounded to
// dtype.
Array dropped(Array x, const Dropout& dropout, DType dtype);

// ((x + r0) + r1) + r2, where every partial sum is rounded to dtype.
Array residual_sum(Array x, const std::vector<Array>& residuals, DType dtype);

// Over the last dimension; an empty bias is none.
Array layer_norm(const Array& x, const Array& weight, const Array& bias, double eps);
Array rms_norm(const Array& x, const Array& weight, double eps);

}  // namespace tessera::reference
