// cuda.mma: linear() and gated_linear() of dozens of tokens on any GPU since Ampere. Weights are
// decoded in registers, and mma.sync multiplies them with activations from shared memory.
//
//                    tokens (32, 64, 128)
//                     +------------------+
//   features: warp 0  | tile, tile       |     each warp has two tiles of 16 features and all
//             warp 1  | tile, tile       |     tokens, so that a block decodes no weight twice, and
//             ...     |                  |     each activation that is read serves 32 features
//             warp 7  | tile, tile       |
//                     +------------------+
//
// With gated_linear(), a warp's two tiles are the same 16 features of gate and of up, so one block
// has both sums of an output. If there are few features, two warps share theirs and take every
// other pair of slabs (128 deep along K). Blocks divide the work evenly (mma_plan.h).
//
// cp.async copies activations, codes and scales to shared memory while the warps work on the
// previous ones: one pair of slabs at a time for each sharer, unchanged. The block shares
// activations; each warp has its own weights. mma_epilogue.cuh describes the epilogue.
//
// The technique: mma.sync is step 5 of examples/learn (docs/LEARN.md).
#pragma once

#include "cuda/linear/layout/fragments.cuh"
#include "cuda/linear/layout/scaled_words.cuh"
#include "cuda/linear/layout/scales.cuh"
#include "cuda/linear/layout/staged_tile.cuh"
#include "cuda/linear/layout/tile_layout.h"
#include "cuda/linear/matrix.h"
#include "cuda/linear/plan/mma_plan.h"
#include "cuda/linear/portable/mma_epilogue.cuh"
#include "cuda/runtime/dynamic_shared.cuh"
#include "cuda/tile/cp_async.cuh"
#include "cuda/tile/grid_dependency.cuh"
#include "cuda/tile/mma.cuh"
#include "cuda/tile/thread_index.cuh"

namespace tessera::cuda {

struct MmaWeight {
  const void* codes = nullptr;
  TileScales scales{};
};

// The bytes of a tile's pair of slabs in a stage: codes, scales, zero points, all whole vectors.
struct MmaTileBytes {
  int codes, scales, zeros;

  TESSERA_HOST_DEVICE int all() const { return codes + scales + zeros; }
};

struct MmaArgs {
  MmaWeight weights[2];  // of a warp's two tiles: the same one twice, or gate and up
  MmaTileBytes bytes;
  int scale_shift;   // log2 of the pairs that share scales
  int tiles, pairs;  // of 16 features; of slabs, along K
  MmaPlan plan;
  MatrixRows x;  // [m, k]
  int k;
  bool x_aligned;  // 16 bytes at a time
  MmaOutput output;
};

// ---- activations --------------------------------------------------------------------------------

// A thread copies eight neighbours along K of every 16th of a block's tokens, pair after pair.
template <typename T, int kTokens>
struct MmaActivations {
  static constexpr int kVector = 16 / sizeof(T), kOfToken = kPair / kVector;
  static constexpr int kStep = kMmaThreads / kOfToken;
  static constexpr int kTokensApart = kStep * kMmaPitch * static_cast<int>(sizeof(T));
  const T* from;
  char* to;    // in the first stage
  int tokens;  // from the thread's first token on
  int depth;   // from the thread's first element of the next pair on

  __device__ MmaActivations(const MmaArgs& args, int first_token, int first_pair, char* stages) {
    const int token = threadIdx.x / kOfToken, k = threadIdx.x % kOfToken * kVector;
    from = args.x.row<const T>(first_token + token) + (first_pair * kPair + k);
    to = stages + (token * kMmaPitch + k) * static_cast<int>(sizeof(T));
    tokens = args.output.m - first_token - token;
    depth = args.k - first_pair * kPair - k;
  }

  // Copies the next `pairs` pairs into consecutive stages.
  __device__ void copy(const MmaArgs& args, int pairs, int stage) {
    char* place = to + stage;
#pragma unroll 1
    for (int pair = 0; pair < pairs; ++pair) {
      if (args.x_aligned) {
        const T* row = from;
#pragma unroll
        for (int i = 0; i < kTokens / kStep; ++i) {
          copy_async(place + i * kTokensApart, row, depth > 0 && i * kStep < tokens);
          row += args.x.stride * kStep;
        }
      } else {
        copy_each(args, place);
      }
      from += kPair;
      depth -= kPair;
      place += mma_stage_bytes(kTokens);
    }
  }

  // Copies elements one by one.
  __device__ void copy_each(const MmaArgs& args, char* place) const {
#pragma unroll 1
    for (int i = 0; i < kTokens / kStep; ++i) {
      const T* row = from + i * (args.x.stride * kStep);
      T* target = reinterpret_cast<T*>(place + i * kTokensApart);
#pragma unroll 1
      for (int e = 0; e < kVector; ++e) {
        target[e] = i * kStep < tokens && e < depth ? row[e] : T{};
      }
    }
  }
};

// ---- weights ------------------------------------------------------------------------------------

// A warp's copies of its own two tiles. For a pair of slabs: both tiles' codes, then both tiles'
// scales, then their zero points. Half of the lanes copy the scales of one tile.
template <Format F, ScaleMode S, bool Z>
struct MmaCopies {
  static constexpr int kPairBytes = TileFormat<F, Half>::kWords / 4 * 1024;  // codes of a tile
  // f32 scales of blocks smaller than 32 are more than half of the lanes can copy at once.
  static constexpr bool kManyScales = F == Format::int4 && S == ScaleMode::fragments;
  const char* codes[2];
  const char *scales, *zeros;
  int pair;  // the next one of the lane's tile, counted through all tiles

  __device__ void start(const MmaArgs& args, const int (&tiles)[2], int first_pair) {
    const int lane = threadIdx.x % 32, at = lane % 16 * 16;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      codes[i] = static_cast<const char*>(args.weights[i].codes) +
                 std::int64_t{tiles[i] * args.pairs + first_pair} * kPairBytes + lane * 16;
    }
    pair = (lane < 16 ? tiles[0] : tiles[1]) * args.pairs + first_pair;
    const TileScales& mine = lane < 16 ? args.weights[0].scales : args.weights[1].scales;
    if constexpr (S != ScaleMode::none) scales = static_cast<const char*>(mine.scales) + at;
    if constexpr (Z && S != ScaleMode::none) {
      zeros = reinterpret_cast<const char*>(mine.zeros) + at;
    }
  }

  // Copies the next pair and advances by `step`.
  __device__ void copy(const MmaArgs& args, int step, char* stage) {
    const int lane = threadIdx.x % 32;
    char* to = stage + lane * 16;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int at = 0; at < kPairBytes; at += 512) {
        copy_async(to + i * kPairBytes + at, codes[i] + at, true);
      }
      codes[i] += step * kPairBytes;
    }
    if constexpr (S != ScaleMode::none) {
      const MmaTileBytes& bytes = args.bytes;
      const int at = lane % 16 * 16;
      const std::int64_t block = pair >> args.scale_shift;
      char* place = stage + 2 * kPairBytes + (lane < 16 ? 0 : bytes.scales) + at;
      if (at < bytes.scales) copy_async(place, scales + block * bytes.scales, true);
      if constexpr (kManyScales) {
        if (at + 256 < bytes.scales) {
          copy_async(place + 256, scales + block * bytes.scales + 256, true);
        }
      }
      if constexpr (Z) {
        place = stage + 2 * (kPairBytes + bytes.scales) + (lane < 16 ? 0 : bytes.zeros) + at;
        if (at < bytes.zeros) copy_async(place, zeros + block * bytes.zeros, true);
      }
      pair += step;
    }
  }
};

// A lane's share of a tile's pair, from a stage.
template <Format F, ScaleMode S, bool Z, typename T>
struct MmaShare {
  static constexpr int kWords = TileFormat<F, T>::kWords;
  std::uint32_t words[kWords];  // of a slab
  RawScales raw;

  // Decodes steps 0 and 1 of a slab, or 2 and 3, with their block scales.
  __device__ void decode(int slab, int side, RowState& rows, Halves (&a)[2][4]) const {
    Fragments all;
    decode_scaled<F, S, Z, T>(words, raw, slab, rows, all);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int r = 0; r < 4; ++r) a[j][r] = all[2 * side + j][r];
    }
  }
};

// ---- the kernel ---------------------------------------------------------------------------------

// Neighbouring tiles have the same weights.
__device__ inline MmaPlace place_of(const MmaArgs& args, int block, int tile) {
  const MmaPlan& plan = args.plan;
  const int token_block = tile % plan.token_blocks, feature_block = tile / plan.token_blocks;
  return {.tile = tile,
          .first_token = token_block * plan.tokens,
          .first_feature = feature_block * (plan.features() >> args.output.gated),
          .features = plan.features(),
          .sharers_log2 = plan.sharers_log2,
          .block = block,
          .first_block = plan.block_of(tile * args.pairs),
          .last_block = plan.block_of((tile + 1) * args.pairs - 1)};
}

// A block's share of an output tile: pairs begin to end.
struct MmaRun {
  int tile, begin, end;

  // From `unit` on, at most up to `last_unit`.
  __device__ MmaRun(const MmaArgs& args, int unit, int last_unit)
      : tile(unit / args.pairs),
        begin(unit - tile * args.pairs),
        end(min(args.pairs, begin + last_unit - unit)) {}
};

// Multiplies a pair of slabs with a block's tokens: x and stage are the warp's activations and
// weights. While the products of two steps run, the next two steps are decoded.
template <Format F, ScaleMode S, bool Z, typename T, int kTokens>
__device__ inline void multiply_pair(const MmaArgs& args, const T* x, const char* stage,
                                     RowState (&rows)[2], float (&sums)[2][kTokens / 8][4]) {
  constexpr int kPairBytes = MmaCopies<F, S, Z>::kPairBytes;
  const int lane = threadIdx.x % 32;
  MmaShare<F, S, Z, T> shares[2];
  Halves a[2][2][2][4];  // [this half of a slab, the next][tile][step]
  const auto decode = [&](int quarter) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (quarter % 2 == 0) {
        load_staged_words(stage + i * kPairBytes, quarter / 2, lane, shares[i].words);
      }
      shares[i].decode(quarter / 2, quarter % 2, rows[i], a[quarter % 2][i]);
    }
  };
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const char* scales = stage + 2 * kPairBytes + i * args.bytes.scales;
    const char* zeros = stage + 2 * (kPairBytes + args.bytes.scales) + i * args.bytes.zeros;
    load_staged_scales<F, S, Z>(scales, zeros, args.weights[0].scales.shift, lane, shares[i].raw);
  }
  decode(0);
#pragma unroll
  for (int quarter = 0; quarter < 4; ++quarter) {
    if (quarter + 1 < 4) decode(quarter + 1);
#pragma unroll
    for (int c = 0; c < kTokens / 8; ++c) {
      const uint4 eight = *reinterpret_cast<const uint4*>(x + c * (8 * kMmaPitch) +
                                                          quarter / 2 * kSlab + quarter % 2 * 8);
      const Halves b[2][2] = {{eight.x, eight.y}, {eight.z, eight.w}};
#pragma unroll
      for (int step = 0; step < 2; ++step) {
#pragma unroll
        for (int i = 0; i < 2; ++i) mma_16x8x16(sums[i][c], a[quarter % 2][i][step], b[step], T{});
      }
    }
  }
}

template <Format F, ScaleMode S, bool Z, typename T, int kTokens>
__global__ void __launch_bounds__(kMmaThreads, kTokens == 32 ? 2 : 1) multiply_tiles(MmaArgs args) {
  const int lane = threadIdx.x % 32, warp = static_cast<int>(threadIdx.x / 32);
  const int sharers = 1 << args.plan.sharers_log2, sharer = warp & (sharers - 1);
  // In shared memory: nf4's table, activations [buffer][sharer], weights [buffer][warp].
  Halves* nf4_table = dynamic_shared<Halves>();
  char* stages = dynamic_shared<char>() + (F == Format::nf4 ? kNf4TableBytes : 0);
  const int x_bytes = sharers * mma_stage_bytes(kTokens);
  const int warp_bytes = 2 * args.bytes.all(), weight_bytes = kMmaWarps * warp_bytes;
  char* weights = stages + kMmaStages * x_bytes + warp * warp_bytes;
  const char* my_x = stages + sharer * mma_stage_bytes(kTokens) +
                     (lane / 4 * kMmaPitch + lane % 4 * 16) * static_cast<int>(sizeof(T));

  int unit = args.plan.first_unit(fresh_block_index());
#pragma unroll 1
  while (unit < args.plan.first_unit(fresh_block_index() + 1)) {
    const MmaRun run(args, unit, args.plan.first_unit(fresh_block_index() + 1));
    const bool first = unit == args.plan.first_unit(fresh_block_index());
    unit += run.end - run.begin;
    int left = run.end - run.begin;  // pairs to multiply
    int tiles[2];
    RowState rows[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int number =
          (run.tile / args.plan.token_blocks * kMmaWarps + warp) >> args.plan.sharers_log2;
      // Warps beyond the last tile repeat it; their sums are never read.
      tiles[i] = min(args.output.gated ? number : 2 * number + i, args.tiles - 1);
      rows[i] = no_rows<F, T>(nf4_table, lane);
      start_tile<F, S, Z, T>(args.weights[i].scales,
                             args.output.row_scales[i] + tiles[i] * kTileHeight, tiles[i], lane,
                             rows[i]);
    }
    MmaCopies<F, S, Z> copies;
    copies.start(args, tiles, run.begin + sharer);
    MmaActivations<T, kTokens> activations(args, run.tile % args.plan.token_blocks * kTokens,
                                           run.begin, stages);
    if (sharer < left) copies.copy(args, sharers, weights);
    const int features = args.plan.features() >> args.output.gated;
    prefetch_ends(args.output, run.tile / args.plan.token_blocks * std::int64_t{features},
                  features);
    if (first) {
      let_next_kernel_start();
      if constexpr (F == Format::nf4) fill_nf4_table<T>(nf4_table);
      wait_for_earlier_kernels();
    }
    activations.copy(args, min(sharers, left), 0);
    close_copy_group();

    // A round: a pair for each sharer.
    float sums[2][kTokens / 8][4] = {};
    int buffer = 0;
#pragma unroll 1
    for (; left > 0; left -= sharers, buffer ^= 1) {
      wait_for_copies<0>();
      __syncthreads();
      const int next = left - sharers, other = buffer ^ 1;
      if (sharer < next) copies.copy(args, sharers, weights + other * weight_bytes);
      activations.copy(args, min(sharers, next), other * x_bytes);
      close_copy_group();
      if (sharer < left) {
        multiply_pair<F, S, Z, T, kTokens>(args,
                                           reinterpret_cast<const T*>(my_x + buffer * x_bytes),
                                           weights + buffer * weight_bytes, rows, sums);
      }
    }
    block_epilogue<kTokens>(args.output,
                            place_of(args, fresh_block_index(), (unit - 1) / args.pairs),
                            TileFormat<F, T>::kGain, sums, reinterpret_cast<float*>(stages));
    __syncthreads();  // before the next tile's copies
  }
}

}  // namespace tessera::cuda
