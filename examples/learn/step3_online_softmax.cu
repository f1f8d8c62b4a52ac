// Step 3: one kernel. A block keeps 64 queries and loops over the keys, 64 at a time; no score
// leaves the chip. The softmax of a row is computed as its scores arrive:
//
//   largest' = max(largest, scores of this tile)
//   rescale  = 2^(largest - largest')             brings earlier sums to the new largest score
//   weights  = 2^(scores - largest')
//   sum      = sum * rescale + weights            of this tile
//   out      = out * rescale + weights V
//
//                      keys ->
//          +----+----+----+----+----+
//          | K0 | K1 | K2 | K3 | ...|
//          +----+----+----+----+----+
//   +----+ +----+----+ - -
//   | Q  | | P0 | P1 |  a tile of weights lives as long as it is needed
//   +----+ +----+----+ - -
//          | V0 | V1 | ...
//   out = (P0 V0 + P1 V1 + ...) / sum, at the very end
//
// Powers of two instead of e, because the hardware has those; log2(e) goes into the scale.
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
  const int query = block % tiles * kTile;
  const std::int64_t head = std::int64_t{block / tiles} * p.tokens * kDim;  // where it begins
  constexpr float kFactor = 0.125f * 1.44269504f;                           // log2(e) / sqrt(64)

  float out[4][8] = {}, sum[4] = {}, largest[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
  load(shared.q, p.q + head, query, p.tokens);
  for (int key = 0; key < p.tokens; key += kTile) {
    __syncthreads();  // no thread reads the previous tiles any more
    load(shared.k, p.k + head, key, p.tokens);
    load(shared.v, p.v + head, key, p.tokens);
    __syncthreads();

    float scores[4][8] = {};
    multiply_transposed(scores, shared.q, shared.k);
    for (int r = 0; r < 4; ++r) {
      float top = largest[r];
      for (int c = 0; c < 8; ++c) {
        const bool visible = key + my_column() + 8 * c < p.tokens;
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

void run_online_softmax(Context& ctx, const Problem& p) {
  const cuda::Launch launch(ctx, "learn: online softmax");
  const std::int64_t tiles = (p.tokens + kTile - 1) / kTile;
  launch(attend, {.blocks = p.heads * tiles, .threads = kThreads, .shared_bytes = sizeof(Shared)},
         p);
}

}  // namespace tessera::learn
