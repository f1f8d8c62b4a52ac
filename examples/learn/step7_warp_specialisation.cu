// Step 7, the teaching kernel: one warp fetches, four compute. Until now all threads fetched a
// tile, waited for it, computed, and fetched the next: either memory or the tensor cores were idle.
// Here a fifth warp only starts the copy engine (TMA), as many tiles ahead as there is room for,
// and the four warps that compute find their tiles ready. (From compute capability 9.0 on.)
//
//               +-------------------- a ring of two stages ---------------------+
//               |   stage 0: a tile of K, a tile of V     stage 1: the same     |
//               +---------------------------------------------------------------+
//   warp 4      wait until empty -> copy -> wait until empty -> copy -> ...
//                                    | full        ^ empty
//   warps 0-3   wait until full  -> compute -> signal empty -> wait until full -> ...
//
// Each stage has two barriers. `full` ends a phase when all announced bytes have landed, `empty`
// when all four warps have signalled that they are done. A phase differs from the next by its
// parity, which flips each time round the ring. No thread ever waits for the whole block.
//
// The copy engine brings a box of 64 x 64 numbers at the request of one thread: it computes the
// addresses, fills in zeros after the last row, and swizzles as step 6 did (part c of row r lies
// at c ^ r % 8).
#include <cmath>

#include "cuda/runtime/launch.h"
#include "cuda/tile/exp2.cuh"
#include "cuda/tile/hopper/mbarrier.cuh"
#include "cuda/tile/hopper/tensor_map.h"
#include "cuda/tile/hopper/tma.cuh"
#include "cuda/tile/ldmatrix.cuh"
#include "cuda/tile/mma.cuh"
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

  __device__ const uint4* at(int row, int chunk) const { return &chunks[row][chunk ^ row % 8]; }
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
  float out[8][4] = {}, sum[2] = {}, largest[2] = {-INFINITY, -INFINITY};
};

// scores = Q K^T: 16 keys and 16 dims at a time.
__device__ void multiply_keys(float (&scores)[8][4], const std::uint32_t (&q)[4][4], const Tile& k,
                              int lane) {
#pragma unroll
  for (int n = 0; n < 8; n += 2) {
#pragma unroll
    for (int d = 0; d < 4; ++d) {
      std::uint32_t keys[4];
      cuda::load_matrices(keys, k.at(8 * n + lane % 8 + lane / 16 * 8, 2 * d + lane / 8 % 2));
      cuda::mma_16x8x16(scores[n], q[d], {keys[0], keys[1]}, Half());
      cuda::mma_16x8x16(scores[n + 1], q[d], {keys[2], keys[3]}, Half());
    }
  }
}

// Scores become weights; the sums so far are rescaled.
__device__ void softmax(float (&scores)[8][4], Rows& rows) {
  constexpr float kFactor = 0.125f * 1.44269504f;  // log2(e) / sqrt(64)
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    float top = -INFINITY;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      top = fmaxf(top, fmaxf(scores[n][2 * side], scores[n][2 * side + 1]));
    }
    top = fmaxf(rows.largest[side], tile::quad_max(top) * kFactor);
    const float rescale = cuda::fast_exp2(rows.largest[side] - top);
    rows.largest[side] = top;
    rows.sum[side] *= rescale;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 2 * side; i < 2 * side + 2; ++i) {
        scores[n][i] = cuda::fast_exp2(scores[n][i] * kFactor - top);
        rows.sum[side] += scores[n][i];
        rows.out[n][i] *= rescale;
      }
    }
  }
}

// out += weights V: 16 keys and 16 dims at a time.
__device__ void multiply_values(const float (&weights)[8][4], const Tile& v, Rows& rows, int lane) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const auto &near = weights[2 * j], &far = weights[2 * j + 1];
    const std::uint32_t a[4] = {
        cuda::pack(near[0], near[1], Half()), cuda::pack(near[2], near[3], Half()),
        cuda::pack(far[0], far[1], Half()), cuda::pack(far[2], far[3], Half())};
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      std::uint32_t values[4];
      cuda::load_matrices_transposed(values, v.at(16 * j + lane % 16, n + lane / 16));
      cuda::mma_16x8x16(rows.out[n], a, {values[0], values[1]}, Half());
      cuda::mma_16x8x16(rows.out[n + 1], a, {values[2], values[3]}, Half());
    }
  }
}

__device__ void compute(const Problem& p, const Work& work, Shared& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int row = work.query + 16 * warp + lane / 4;  // and row + 8
  std::uint32_t q[4][4];                              // 16 rows x 64 dims stay in registers
  tile::wait(shared.q_full, 0);
#pragma unroll
  for (int d = 0; d < 4; ++d) {
    cuda::load_matrices(q[d], shared.q.at(16 * warp + lane % 16, 2 * d + lane / 16));
  }

  Rows rows;
  tile::Ring<kStages> stage;
  for (int key = 0; key < work.end; key += kTile, stage.advance()) {
    tile::wait(shared.full[stage.place], stage.parity);
    float scores[8][4] = {};
    multiply_keys(scores, q, shared.k[stage.place], lane);
    if (key + kTile > p.tokens || (p.causal && key == work.query)) {
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const int column = key + i / 4 * 8 + 2 * (lane % 4) + i % 2;
        const bool hidden = column >= p.tokens || (p.causal && column > row + i / 2 % 2 * 8);
        if (hidden) scores[i / 4][i % 4] = -INFINITY;
      }
    }
    softmax(scores, rows);
    multiply_values(scores, shared.v[stage.place], rows, lane);
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
      *reinterpret_cast<std::uint32_t*>(to + 8 * n + 2 * (lane % 4)) =
          cuda::pack(rows.out[n][2 * side] * factor, rows.out[n][2 * side + 1] * factor, Half());
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

void run_warp_specialisation(Context& ctx, const Problem& p) {
  const cuda::Launch launch(ctx, "learn: warp specialisation");
  const std::int64_t tiles = (p.tokens + kTile - 1) / kTile;
  launch(attend, {.blocks = p.heads * tiles, .threads = kThreads + 32},
         Maps{map_of(p.q, p), map_of(p.k, p), map_of(p.v, p)}, p);
}

}  // namespace tessera::learn
