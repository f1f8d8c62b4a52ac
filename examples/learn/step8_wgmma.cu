// Step 8: the tensor cores of Hopper (only compute capability 9.0). With mma.sync, a warp carries
// every operand through its registers. With wgmma, four warps multiply together, straight from
// shared memory, and could do something else meanwhile:
//
//              64 keys                         a warpgroup: 4 warps, 64 rows, as many as a tile has
//            +--------+
//   64 dims  |  K^T   |  in shared memory      scores = Q K^T    4 instructions, 64 x 64 x 16 each
//            +--------+                        out   += P V      4 more, P from registers
//   +------+ +--------+
//   |  Q   | | scores |  registers: each warp has 16 rows, laid out as mma.sync's
//   +------+ +--------+
//
// Descriptors give the place of a tile and its swizzle of 128 bytes, which the copy engine made.
// (diff this with step7_warp_specialisation.cu: only the two products and their operands have
// changed.)
#include <cmath>

#include "cuda/runtime/launch.h"
#include "cuda/tile/exp2.cuh"
#include "cuda/tile/hopper/mbarrier.cuh"
#include "cuda/tile/hopper/tensor_map.h"
#include "cuda/tile/hopper/tma.cuh"
#include "cuda/tile/hopper/wgmma.cuh"
#include "cuda/tile/pack.cuh"
#include "cuda/tile/quad.cuh"
#include "learn.h"

namespace tessera::learn {
namespace {

namespace tile = cuda::tile;

constexpr int kWarps = kThreads / 32;  // that compute
constexpr int kStages = 2;

struct alignas(1024) Tile {       // the copy engine's swizzle counts rows from such an address
  uint4 chunks[kTile][kDim / 8];  // 64 rows of eight chunks of 16 bytes
};

struct Maps {
  CUtensorMap q, k, v;
};

struct Shared {
  Tile q, k[kStages], v[kStages];
  std::uint64_t q_full, full[kStages], empty[kStages];
};

// Where a block's tile of queries lies, and which keys it sees.
struct Work {
  int head, query, end;

  __device__ explicit Work(const Problem& p) {
    const int tiles = (p.tokens + kTile - 1) / kTile, block = static_cast<int>(blockIdx.x);
    head = block % p.heads;
    query = (tiles - 1 - block / p.heads) * kTile;  // the longest rows first
    end = p.causal ? min(query + kTile, p.tokens) : p.tokens;
  }
};

// ---- one thread fetches -------------------------------------------------------------------------

__device__ void fetch(const Maps& maps, const Work& work, Shared& shared) {
  tile::arrive_expecting(shared.q_full, sizeof(Tile));
  tile::load_box(&shared.q, &maps.q, {0, work.query, work.head, 0}, shared.q_full);
  tile::Ring<kStages> stage;
  for (int key = 0; key < work.end; key += kTile, stage.advance()) {
    const int i = stage.place;
    tile::wait(shared.empty[i], stage.parity ^ 1);  // at once, the first time round
    tile::arrive_expecting(shared.full[i], 2 * sizeof(Tile));
    tile::load_box(&shared.k[i], &maps.k, {0, key, work.head, 0}, shared.full[i]);
    tile::load_box(&shared.v[i], &maps.v, {0, key, work.head, 0}, shared.full[i]);
  }
}

// ---- four warps compute -------------------------------------------------------------------------

// What a warp keeps of its 16 rows. A lane has parts of two rows: its own and the eighth below.
struct Rows {
  float out[32] = {}, sum[2] = {}, largest[2] = {-INFINITY, -INFINITY};
};

// scores = Q K^T, by the whole warpgroup: 16 dims at a time.
__device__ void multiply_keys(float (&scores)[32], const Tile& q, const Tile& k) {
  const std::uint64_t a = tile::depth_contiguous(&q), b = tile::depth_contiguous(&k);
  tile::wgmma_fence();
#pragma unroll
  for (int d = 0; d < 4; ++d) {
    tile::Wgmma<kTile>::shared<__half, tile::BLayout::depth_contiguous>(
        scores, tile::moved(a, 32 * d), tile::moved(b, 32 * d), d > 0);
  }
  tile::wgmma_commit();
  tile::wgmma_wait<0>();
  tile::pin(scores);
}

// Scores become weights; the sums so far are rescaled.
__device__ void softmax(float (&scores)[32], Rows& rows) {
  constexpr float kFactor = 0.125f * 1.44269504f;  // log2(e) / sqrt(64)
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    float top = -INFINITY;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      top = fmaxf(top, fmaxf(scores[4 * n + 2 * side], scores[4 * n + 2 * side + 1]));
    }
    top = fmaxf(rows.largest[side], tile::quad_max(top) * kFactor);
    const float rescale = cuda::fast_exp2(rows.largest[side] - top);
    rows.largest[side] = top;
    rows.sum[side] *= rescale;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 2 * side; i < 2 * side + 2; ++i) {
        scores[4 * n + i] = cuda::fast_exp2(scores[4 * n + i] * kFactor - top);
        rows.sum[side] += scores[4 * n + i];
        rows.out[4 * n + i] *= rescale;
      }
    }
  }
}

// out += weights V: 16 keys at a time.
__device__ void multiply_values(const float (&weights)[32], const Tile& v, Rows& rows) {
  const std::uint64_t b = tile::columns_contiguous(&v, sizeof(Tile));
  std::uint32_t a[4][4];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    a[i / 4][i % 4] = cuda::pack(weights[2 * i], weights[2 * i + 1], Half());
  }
  tile::pin(rows.out);
  tile::wgmma_fence();
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    tile::Wgmma<kDim>::registers<__half, tile::BLayout::columns_contiguous>(
        rows.out, a[j], tile::moved(b, 2048 * j));
  }
  tile::wgmma_commit();
  tile::wgmma_wait<0>();
  tile::pin(rows.out);
}

__device__ void compute(const Problem& p, const Work& work, Shared& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int row = work.query + 16 * warp + lane / 4;  // and row + 8
  tile::wait(shared.q_full, 0);
  Rows rows;
  tile::Ring<kStages> stage;
  for (int key = 0; key < work.end; key += kTile, stage.advance()) {
    tile::wait(shared.full[stage.place], stage.parity);
    float scores[32];
    multiply_keys(scores, shared.q, shared.k[stage.place]);
    if (key + kTile > p.tokens || (p.causal && key == work.query)) {
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const int column = key + i / 4 * 8 + 2 * (lane % 4) + i % 2;
        const bool hidden = column >= p.tokens || (p.causal && column > row + i / 2 % 2 * 8);
        if (hidden) scores[i] = -INFINITY;
      }
    }
    softmax(scores, rows);
    multiply_values(scores, shared.v[stage.place], rows);
    __syncwarp();  // no lane reads this stage any more
    if (lane == 0) tile::arrive(shared.empty[stage.place]);
  }

#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const float factor = 1.f / tile::quad_sum(rows.sum[side]);
    if (row + 8 * side >= p.tokens) continue;
    __half* to = p.out + (std::int64_t{work.head} * p.tokens + row + 8 * side) * kDim;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      *reinterpret_cast<std::uint32_t*>(to + 8 * n + 2 * (lane % 4)) = cuda::pack(
          rows.out[4 * n + 2 * side] * factor, rows.out[4 * n + 2 * side + 1] * factor, Half());
    }
  }
}

__global__ void __launch_bounds__(kThreads + 32, 3)
    attend(const __grid_constant__ Maps maps, const Problem p) {
  __shared__ Shared shared;
  if (threadIdx.x == 0) {
    tile::init_barrier(shared.q_full, 1);
    for (int i = 0; i < kStages; ++i) {
      tile::init_barrier(shared.full[i], 1);
      tile::init_barrier(shared.empty[i], kWarps);
    }
    tile::publish_barriers();
  }
  __syncthreads();
  const Work work(p);
  if (threadIdx.x < kThreads) {
    compute(p, work, shared);
  } else if (threadIdx.x == kThreads) {
    fetch(maps, work, shared);
  }
}

CUtensorMap map_of(const __half* data, const Problem& p) {
  return tile::make_tensor_map(
      {.data = data,
       .dtype = DType::f16,
       .sizes = {kDim, p.tokens, p.heads, 1},
       .strides = {kDim, std::int64_t{p.tokens} * kDim, std::int64_t{p.tokens} * p.heads * kDim},
       .box_rows = kTile});
}

}  // namespace

void run_wgmma(Context& ctx, const Problem& p) {
  const cuda::Launch launch(ctx, "learn: wgmma");
  const std::int64_t tiles = (p.tokens + kTile - 1) / kTile;
  launch(attend, {.blocks = p.heads * tiles, .threads = kThreads + 32},
         Maps{map_of(p.q, p), map_of(p.k, p), map_of(p.v, p)}, p);
}

}  // namespace tessera::learn
