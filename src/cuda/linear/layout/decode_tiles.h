// Decodes a weight in tiles to a dense matrix, for products by a library.
#pragma once

#include "tessera/context.h"
#include "tessera/weight.h"

namespace tessera::cuda {

// out: f16 or bf16 [out_features, in_features], contiguous.
void decode_tiles(Context& ctx, const Weight& weight, const Tensor& out);

}  // namespace tessera::cuda
