#include "cuda/tile/tile_pieces.h"

#include "cuda/runtime/dynamic_shared.cuh"
#include "cuda/runtime/launch.h"
#include "cuda/tile/block_reduce.cuh"
#include "cuda/tile/cp_async.cuh"
#include "cuda/tile/exp2.cuh"
#include "cuda/tile/ldmatrix.cuh"
#include "cuda/tile/mma.cuh"
#include "cuda/tile/pack.cuh"
#include "cuda/tile/padded_rows.cuh"
#include "cuda/tile/quad.cuh"
#include "cuda/tile/reciprocal.cuh"
#include "cuda/tile/swizzled_rows.cuh"
#include "cuda/tile/warp.cuh"

namespace tessera::test {
namespace {

using namespace cuda;

constexpr int kSide = 16;
using Padded = PaddedRows<kSide>;
using Swizzled = SwizzledRows<kSide>;
constexpr int kPaddedBytes = kSide * Padded::kRowBytes,
              kSwizzledBytes = kSide * Swizzled::kRowBytes;

// Lane l has columns 8 n + 2 (l % 4) and the next one, of rows l / 4 and eight further on.
__device__ void write(float* to, int n, const float (&d)[4]) {
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < 4; ++i) {
    to[(lane / 4 + i / 2 * 8) * kSide + 8 * n + 2 * (lane % 4) + i % 2] = d[i];
  }
}

template <typename T>
__global__ void multiply(SmallProducts<T> p) {
  auto* a = dynamic_shared<unsigned char>();
  unsigned char *b = a + kPaddedBytes, *c = b + kPaddedBytes;
  const int lane = threadIdx.x % 32, row = lane / 2, chunk = lane % 2;
  const int from = row * kSide + 8 * chunk;
  copy_async(a + Padded::at(row, chunk), row < p.rows ? p.a + from : p.a, row < p.rows);
  copy_async(b + Padded::at(row, chunk), p.b + from, true);
  close_copy_group();
  copy_async(c + Swizzled::at(row, chunk), p.c + from, true);
  close_copy_group();

  wait_for_copies<1>();
  __syncwarp();
  std::uint32_t left[4], right[4];
  load_matrices(left, a + Padded::at(lane % 16, lane / 16));
  load_matrices(right, b + Padded::at(lane / 16 * 8 + lane % 8, lane / 8 % 2));
  for (int n = 0; n < 2; ++n) {
    float d[4] = {};
    mma_16x8x16(d, left, {right[2 * n], right[2 * n + 1]}, T());
    write(p.straight, n, d);
  }
  wait_for_copies<0>();
  __syncwarp();
  load_matrices_transposed(right, c + Swizzled::at(lane % 16, lane / 16));
  for (int n = 0; n < 2; ++n) {
    float d[4] = {};
    mma_16x8x16(d, left, {right[2 * n], right[2 * n + 1]}, T());
    write(p.transposed, n, d);
  }
}

__global__ void fold_lanes(const float* in, float* folded, std::int32_t* words) {
  const unsigned lane = threadIdx.x;
  const float x = in[lane];
  folded[5 * lane] = tile::quad_max(x);
  folded[5 * lane + 1] = tile::quad_sum(x);
  folded[5 * lane + 2] = warp_reduce(x, Max());
  folded[5 * lane + 3] = warp_reduce(x, Sum());
  folded[5 * lane + 4] = block_reduce<kFoldedLanes / kWarp>(x, Sum());
  const unsigned given = 100 * lane;
  const uint4 got = tile::quad_transpose(given, given + 1, given + 2, given + 3);
  words[4 * lane] = static_cast<std::int32_t>(got.x);
  words[4 * lane + 1] = static_cast<std::int32_t>(got.y);
  words[4 * lane + 2] = static_cast<std::int32_t>(got.z);
  words[4 * lane + 3] = static_cast<std::int32_t>(got.w);
}

__global__ void raise_and_pack_each(const float* in, int count, float* powers, float* reciprocals,
                                    std::uint32_t* f16, std::uint32_t* bf16) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    powers[i] = fast_exp2(in[i]);
    reciprocals[i] = fast_reciprocal(in[i]);
  }
  for (int i = threadIdx.x; i < count / 2; i += blockDim.x) {
    f16[i] = pack(in[2 * i], in[2 * i + 1], Half());
    bf16[i] = pack(in[2 * i], in[2 * i + 1], BFloat16());
  }
}

}  // namespace

template <typename T>
void multiply_small(Context& ctx, const SmallProducts<T>& products) {
  Launch(ctx, "multiply_small")(
      multiply<T>, {.blocks = 1, .threads = 32, .shared_bytes = 2 * kPaddedBytes + kSwizzledBytes},
      products);
}
template void multiply_small<Half>(Context&, const SmallProducts<Half>&);
template void multiply_small<BFloat16>(Context&, const SmallProducts<BFloat16>&);

void fold(Context& ctx, const float* in, float* folded, std::int32_t* words) {
  Launch(ctx, "fold")(fold_lanes, {.blocks = 1, .threads = kFoldedLanes}, in, folded, words);
}

void raise_and_pack(Context& ctx, const float* in, int count, float* powers, float* reciprocals,
                    std::uint32_t* f16, std::uint32_t* bf16) {
  Launch(ctx, "raise_and_pack")(raise_and_pack_each, {.blocks = 1, .threads = 64}, in, count,
                                powers, reciprocals, f16, bf16);
}

}  // namespace tessera::test
