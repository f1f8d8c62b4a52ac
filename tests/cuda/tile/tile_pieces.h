// Small kernels over the pieces of the tile layer that every GPU has.
#pragma once

#include <cstdint>

#include "core/half.h"
#include "tessera/context.h"

namespace tessera::test {

// All are [16, 16]: straight = a b^T, transposed = a c, by one warp. Only `rows` rows of a exist;
// the others count as zeros.
template <typename T>
struct SmallProducts {
  const T *a, *b, *c;
  int rows;
  float *straight, *transposed;
};
template <typename T>
void multiply_small(Context& ctx, const SmallProducts<T>& products);

// Each lane of a block of two warps gets its quad's largest and sum, its warp's, and the block's
// sum: folded [lanes, 5]. Lane l gives 100 l + g to quad_transpose for group g: words [lanes, 4].
inline constexpr int kFoldedLanes = 64;
void fold(Context& ctx, const float* in, float* folded, std::int32_t* words);

// `in` [count], each 2^x and 1 / x, and pairs of it packed as f16 and as bf16 [count / 2].
void raise_and_pack(Context& ctx, const float* in, int count, float* powers, float* reciprocals,
                    std::uint32_t* f16, std::uint32_t* bf16);

}  // namespace tessera::test
