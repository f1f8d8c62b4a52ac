// The tile layer for Hopper in one small kernel: two products on one warpgroup, as attention has
// them.
#pragma once

#include "cuda/tile/hopper/tensor_map.h"
#include "tessera/context.h"

namespace tessera::test {

inline constexpr int kRows = 64, kKeys = 128, kDim = 64;

// scores = q k^T [kRows, kKeys] and out = bf16(scores) v [kRows, kDim], in f32, of bf16 maps with
// boxes of all rows.
void two_products(Context& ctx, const CUtensorMap& q, const CUtensorMap& k, const CUtensorMap& v,
                  float* scores, float* out);

}  // namespace tessera::test
