// Step 4: under a causal mask, query i sees the keys 0 .. i. Half of the tiles are not seen by any
// query: they are not visited. Only the tile on the diagonal checks which scores are visible.
//
//          K0   K1   K2   K3
//        +----+----+----+----+
//   Q0   | \  |    |    |    |    \  partial: the mask is checked for each score
//        +----+----+----+----+
//   Q1   | ## | \  |    |    |    #  full: no check
//        +----+----+----+----+
//   Q2   | ## | ## | \  |    |       empty: not even loaded
//        +----+----+----+----+
//
// Rows of tiles now have different lengths. The GPU hands out blocks in order, so the longest come
// first, and the short ones fill the gaps at the end. (diff this with step3_online_softmax.cu.)
#include <cmath>

#include "cuda/runtime/dynamic_shared.cuh"
#include "cuda/runtime/launch.h"
#include "register_tile.cuh"

namespace tessera::learn {
namespace {

struct Shared {
  FloatTile q, k, v, weights;
};

__global__ void __launch_bounds__(kThreads) attend(Problem p) {
  auto& shared = *cuda::dynamic_shared<Shared>();
  const int tiles = (p.tokens + kTile - 1) / kTile, block = static_cast<int>(blockIdx.x);
  const int query = (tiles - 1 - block / p.heads) * kTile;  // the last rows of all heads first
  const std::int64_t head = std::int64_t{block % p.heads} * p.tokens * kDim;  // where it begins
  const int end = p.causal ? min(query + kTile, p.tokens) : p.tokens;         // of visible keys
  constexpr float kFactor = 0.125f * 1.44269504f;                             // log2(e) / sqrt(64)

  float out[4][8] = {}, sum[4] = {}, largest[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
  load(shared.q, p.q + head, query, p.tokens);
  for (int key = 0; key < end; key += kTile) {
    __syncthreads();  // no thread reads the previous tiles any more
    load(shared.k, p.k + head, key, p.tokens);
    load(shared.v, p.v + head, key, p.tokens);
    __syncthreads();

    float scores[4][8] = {};
    multiply_transposed(scores, shared.q, shared.k);
    const bool partial = key + kTile > p.tokens || (p.causal && key == query);
    for (int r = 0; r < 4; ++r) {
      float top = largest[r];
      for (int c = 0; c < 8; ++c) {
        const int column = key + my_column() + 8 * c;
        const bool visible =
            !partial || (column < p.tokens && (!p.causal || column <= query + my_row() + r));
        scores[r][c] = visible ? scores[r][c] * kFactor : -INFINITY;
        top = fmaxf(top, scores[r][c]);
      }
      top = row_max(top);
      const float rescale = exp2f(largest[r] - top);
      largest[r] = top;
      sum[r] *= rescale;
      for (int c = 0; c < 8; ++c) {
        const float weight = exp2f(scores[r][c] - top);
        sum[r] += weight;  // of this thread's columns; the row's is added up at the end
        out[r][c] *= rescale;
        shared.weights[my_row() + r][my_column() + 8 * c] = weight;
      }
    }
    __syncwarp();  // a warp reads the 16 rows of weights that it has written itself
    multiply(out, shared.weights, shared.v);
  }
  for (int r = 0; r < 4; ++r) {
    const float total = row_sum(sum[r]);
    const int row = query + my_row() + r;
    for (int c = 0; c < 8 && row < p.tokens; ++c) {
      p.out[head + row * kDim + my_column() + 8 * c] = __float2half(out[r][c] / total);
    }
  }
}

}  // namespace

void run_causal(Context& ctx, const Problem& p) {
  const cuda::Launch launch(ctx, "learn: causal");
  const std::int64_t tiles = (p.tokens + kTile - 1) / kTile;
  launch(attend, {.blocks = p.heads * tiles, .threads = kThreads, .shared_bytes = sizeof(Shared)},
         p);
}

}  // namespace tessera::learn
