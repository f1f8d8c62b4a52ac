// Decodes a weight of any format to a dense matrix, on a GPU. The arguments have been checked.
#pragma once

#include "tessera/quant.h"

namespace tessera::cuda {

void dequantize(Context& ctx, const Weight& weight, const Tensor& out);

}  // namespace tessera::cuda
