// Copies rows from one matrix to another, for products over some of the rows (linear.cc).
#pragma once

#include <cstdint>

#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera::cuda {

// Copies the rows of `from` [n, columns] to the first rows of `to` [m, columns], which has the same
// dtype and at least as many rows. The other rows become zeros.
void copy_rows(Context& ctx, const Tensor& from, const Tensor& to);

}  // namespace tessera::cuda
