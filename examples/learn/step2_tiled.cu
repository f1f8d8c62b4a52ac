// Step 2: a block brings what it needs into shared memory once, in tiles of 64 x 64.
//
//                     64 keys
//                   +--------+
//                64 |  K^T   |        a block computes a tile of 64 x 64 scores,
//                   +--------+        a thread 4 x 8 of them
//          +------+ +--------+
//  64 rows |  Q   | | scores | -> memory
//          +------+ +--------+
//
// Each number from memory is used 64 times. The softmax is that of step 1, and the scores still go
// through memory three times.
#include <cmath>

#include "cuda/runtime/launch.h"
#include "register_tile.cuh"

namespace tessera::learn {
namespace {

__global__ void __launch_bounds__(kThreads) multiply_keys(Problem p) {
  __shared__ FloatTile q, k;
  const int tiles = (p.tokens + kTile - 1) / kTile, block = static_cast<int>(blockIdx.x);
  const int key = block % tiles * kTile, query = block / tiles % tiles * kTile;
  const std::int64_t head = block / tiles / tiles;
  load(q, p.q + head * p.tokens * kDim, query, p.tokens);
  load(k, p.k + head * p.tokens * kDim, key, p.tokens);
  __syncthreads();

  float sums[4][8] = {};
  multiply_transposed(sums, q, k);
  for (int r = 0; r < 4; ++r) {
    const int row = query + my_row() + r;
    float* to = p.scores + (head * p.tokens + row) * p.tokens;
    for (int c = 0; c < 8; ++c) {
      const int column = key + my_column() + 8 * c;
      if (row < p.tokens && column < p.tokens) to[column] = sums[r][c] * 0.125f;
    }
  }
}

// One warp for each row, which is read three times.
__global__ void __launch_bounds__(kThreads) softmax(Problem p) {
  const std::int64_t row = std::int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (row >= std::int64_t{p.heads} * p.tokens) return;
  float* scores = p.scores + row * p.tokens;
  float largest = -INFINITY, sum = 0.f;
  for (int key = lane; key < p.tokens; key += 32) largest = fmaxf(largest, scores[key]);
  for (int other = 16; other > 0; other /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, other));
  }
  for (int key = lane; key < p.tokens; key += 32) sum += expf(scores[key] - largest);
  for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, other);
  for (int key = lane; key < p.tokens; key += 32) scores[key] = expf(scores[key] - largest) / sum;
}

__global__ void __launch_bounds__(kThreads) multiply_values(Problem p) {
  __shared__ FloatTile weights, v;
  const int tiles = (p.tokens + kTile - 1) / kTile, block = static_cast<int>(blockIdx.x);
  const int query = block % tiles * kTile;
  const std::int64_t head = block / tiles;
  float sums[4][8] = {};
  for (int key = 0; key < p.tokens; key += kTile) {
    __syncthreads();  // no thread reads the previous tiles any more
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kTile; i += kThreads) {
      const int row = i / kTile, column = i % kTile;
      weights[row][column] =
          query + row < p.tokens && key + column < p.tokens
              ? p.scores[(head * p.tokens + query + row) * p.tokens + key + column]
              : 0.f;
    }
    load(v, p.v + head * p.tokens * kDim, key, p.tokens);
    __syncthreads();
    multiply(sums, weights, v);
  }
  for (int r = 0; r < 4 && query + my_row() + r < p.tokens; ++r) {
    __half* to = p.out + (head * p.tokens + query + my_row() + r) * kDim;
    for (int c = 0; c < 8; ++c) to[my_column() + 8 * c] = __float2half(sums[r][c]);
  }
}

}  // namespace

void run_tiled(Context& ctx, const Problem& p) {
  const cuda::Launch launch(ctx, "learn: tiled");
  const std::int64_t tiles = (p.tokens + kTile - 1) / kTile;
  launch(multiply_keys, {.blocks = p.heads * tiles * tiles, .threads = kThreads}, p);
  launch(softmax, {.blocks = (std::int64_t{p.heads} * p.tokens + 3) / 4, .threads = kThreads}, p);
  launch(multiply_values, {.blocks = p.heads * tiles, .threads = kThreads}, p);
}

}  // namespace tessera::learn
