// Compares the output of an op with its float64 reference.
#pragma once

#include <gtest/gtest.h>

#include "reference/array.h"
#include "reference/error.h"
#include "tessera/dtype.h"

namespace tessera::test {

using reference::Array;
using reference::relative_error;

// The dtypes that every op takes.
inline constexpr DType kFloats[] = {DType::f32, DType::f16, DType::bf16};

// One unit in the last place at 1.0: 2^-23 for f32, 2^-10 for f16, 2^-7 for bf16.
double epsilon(DType dtype);

// |actual - expected| <= absolute + relative * |expected| for every element. NaN never passes;
// equal infinities do.
testing::AssertionResult close(const Array& actual, const Array& expected, double relative,
                               double absolute);

// The field's rule for low precision, where `plain` is a straightforward computation in the same
// precision: max|actual - exact| <= 2 max|plain - exact| + atol, and mean|actual - exact| <= 1.5
// mean|plain - exact| + atol.
testing::AssertionResult as_good_as(const Array& actual, const Array& exact, const Array& plain,
                                    double atol);

// Equal bit for bit (NaN equals NaN).
testing::AssertionResult identical(const Array& a, const Array& b);

}  // namespace tessera::test
