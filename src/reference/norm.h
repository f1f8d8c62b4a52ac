#pragma once

#include <vector>

#include "reference/array.h"
#include "tessera/dropout.h"
#include "tessera/dtype.h"

namespace tessera::reference {

// Drops the elements of x that norm_dropout_words() names. The others are divided by 1 - p and
// rounded to dtype.
Array dropped(Array x, const Dropout& dropout, DType dtype);

// ((x + r0) + r1) + r2, with every partial sum rounded to dtype.
Array residual_sum(Array x, const std::vector<Array>& residuals, DType dtype);

// Over the last dimension. An empty bias means none.
Array layer_norm(const Array& x, const Array& weight, const Array& bias, double eps);
Array rms_norm(const Array& x, const Array& weight, double eps);

}  // namespace tessera::reference
