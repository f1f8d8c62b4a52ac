// Copies rows from one matrix to another, for products that run on some rows (linear.cc).
#pragma once

#include <cstdint>

#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera::cuda {

// The rows of `from` [n, columns] into the first ones of `to` [m, columns], which has at least as
// many, of the same dtype. The others become zeros.
void copy_rows(Context& ctx, const Tensor& from, const Tensor& to);

}  // namespace tessera::cuda
