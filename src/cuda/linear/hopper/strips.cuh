// cuda.strips: linear() of a few tokens on Hopper. Weights and activations pass through shared
// memory together, and as many warps as possible decode.
//
// A block makes a strip of up to 28 tiles (16 output features each, tile_layout.h) at a time, for
// up to 16 tokens. With more tokens, each strip is made once for each group of 16. The block goes
// along K by pairs of slabs (128 deep). For each pair, the copy engine loads the codes and scales
// of the strip's tiles, and the activations, into one of several stages. Each tile has some warps,
// which take its pairs in turn (strip_plan.h). With three warps to a tile:
//
//            pair 0      pair 1      pair 2      pair 3
//          +-----------+-----------+-----------+-----------+
//   x      | M x 128   |           |           |           |
//          +-----------+-----------+-----------+-----------+
//   tile 0 |  warp 0   |  warp 1   |  warp 2   |  warp 0   | ...
//   tile 1 |  warp 3   |  warp 4   |  warp 5   |  warp 3   |
//   ...
//
// A warp decodes 16 x 128 weights in registers and multiplies them with mma.sync (slab.cuh): the 16
// features are the rows of A, kTokens tokens the columns of B. At the end of a strip the sums of a
// tile's warps are added in order, the same every time, and the epilogue is applied.
//
// Instructions are the limit: about 220 for a warp's pair, most of them for decoding. With 16
// tokens, four-bit weights take about as long to decode as to read.
//
// The technique: mma.sync is step 5 of examples/learn, a ring of stages that separate warps fill
// through the copy engine is step 7 (docs/LEARN.md).
#pragma once

#include "cuda/linear/epilogue.cuh"
#include "cuda/linear/layout/fragments.cuh"
#include "cuda/linear/layout/scales.cuh"
#include "cuda/linear/layout/staged_tile.cuh"
#include "cuda/linear/layout/tile_boxes.h"
#include "cuda/linear/layout/tile_layout.h"
#include "cuda/linear/matrix.h"
#include "cuda/linear/plan/strip_plan.h"
#include "cuda/linear/portable/slab.cuh"
#include "cuda/runtime/dynamic_shared.cuh"
#include "cuda/tile/grid_dependency.cuh"
#include "cuda/tile/hopper/mbarrier.cuh"
#include "cuda/tile/hopper/tma.cuh"
#include "cuda/tile/hopper/warpgroup.cuh"

namespace tessera::cuda {

struct StripArgs {
  TileBoxes boxes{};
  CUtensorMap x{};           // [slabs along K, m, 64]
  int tiles = 0, pairs = 0;  // of the weight
  StripPlan plan{};
  int m = 0, m_log2 = 0;  // tokens; of a group, rounded up
  Epilogue<MatrixRows> epilogue;
  const float* row_scales = nullptr;
  std::int64_t n = 0;
};

// Pairs of weights that are requested before earlier kernels have ended. Only a few, because
// activations queue behind everything requested before them.
inline constexpr int kStripsAhead = 3;
// The block's barrier of the warps that multiply.
inline constexpr int kStripBarrier = 1;

// ---- shared memory ------------------------------------------------------------------------------

template <Format F, typename T, int kTokens>
struct StripStage {
  static constexpr int kCodeBytes = TileFormat<F, T>::kWords * 4 * 32 * 2;  // of a tile's pair
  static constexpr int kSlabBytes = kTokens * 128;                          // of x
  static constexpr int kXBytes = 2 * kSlabBytes;                            // then codes, scales
};

// The layout, in this order (strip_plan.cc counts it). Stages are aligned to 1024 bytes, as
// swizzled boxes must be.
struct StripPlaces {
  char* stages;
  float* slots;                 // [warp][slot]
  float* row_scales;            // [tile][row]
  float* bias;                  // [tile][row]
  std::uint64_t *full, *empty;  // of each stage
  Halves* nf4_table;

  __device__ StripPlaces(const StripPlan& plan, int tokens) {
    stages = dynamic_shared<char>();
    stages += (1024 - static_cast<std::uint32_t>(__cvta_generic_to_shared(stages)) % 1024) % 1024;
    slots = reinterpret_cast<float*>(stages + plan.stages * plan.stage_bytes);
    row_scales = slots + plan.warps() * slot_size(tokens);
    bias = row_scales + plan.tiles * kTileHeight;
    full = reinterpret_cast<std::uint64_t*>(bias + plan.tiles * kTileHeight);
    empty = full + plan.stages;
    nf4_table = reinterpret_cast<Halves*>(empty + plan.stages);
  }
};

// ---- a block's strips and pairs -----------------------------------------------------------------

// Neighbouring blocks have different strips of the same group.
struct StripItem {
  int strip, group;

  __device__ StripItem(const StripPlan& plan, int item)
      : strip(plan.groups == 1 ? item : item % plan.strips),
        group(plan.groups == 1 ? 0 : item / plan.strips) {}
};

// The stage of pair number `number`, counted through all strips of the block.
struct StripRing {
  int place;
  std::uint32_t parity;

  __device__ StripRing(int number, int stages)
      : place(number % stages), parity(static_cast<std::uint32_t>(number / stages) & 1) {}
  __device__ void advance(int step, int stages) {
    place += step;
    if (place >= stages) place -= stages, parity ^= 1;
  }
};

// ---- loading ------------------------------------------------------------------------------------

// Calls load(item, pair, place) for all pairs, each when its stage is free.
template <typename F>
__device__ void for_each_pair(const StripArgs& args, const StripPlaces& shared, F&& load) {
  const StripPlan& plan = args.plan;
  StripRing ring(0, plan.stages);
  for (int number = static_cast<int>(blockIdx.x); number < plan.items();
       number += static_cast<int>(gridDim.x)) {
    const StripItem item(plan, number);
    for (int pair = 0; pair < args.pairs; ++pair, ring.advance(1, plan.stages)) {
      tile::wait(shared.empty[ring.place], ring.parity ^ 1);
      load(item, pair, ring.place);
    }
  }
}

// Each of the two functions is run by one thread, in different warps: starting a copy takes long.
template <typename Stage, bool kScales, bool kZeros>
__device__ void load_weights(const StripArgs& args, const StripPlaces& shared) {
  const StripPlan& plan = args.plan;
  const TileBoxes& boxes = args.boxes;
  const std::uint32_t bytes =
      plan.tiles * (Stage::kCodeBytes + boxes.scale_bytes + boxes.zero_bytes);
  int ahead = kStripsAhead;
  for_each_pair(args, shared, [&](const StripItem& item, int pair, int place) {
    if (ahead-- == 0) wait_for_earlier_kernels();
    std::uint64_t& barrier = shared.full[place];
    char* codes = shared.stages + place * plan.stage_bytes + Stage::kXBytes;
    char* scales = codes + plan.tiles * Stage::kCodeBytes;
    const int tile = item.strip * plan.tiles, block = pair >> boxes.scale_shift;
    tile::arrive_expecting(barrier, bytes);
    tile::load_box(codes, &boxes.codes, {pair * (Stage::kCodeBytes / 8), tile}, barrier);
    if constexpr (kScales) {
      tile::load_box(scales, &boxes.scales, {block * (boxes.scale_bytes / 8), tile}, barrier);
    }
    if constexpr (kZeros) {
      tile::load_box(scales + plan.zeros_at, &boxes.zeros, {block * (boxes.zero_bytes / 8), tile},
                     barrier);
    }
  });
}
template <typename Stage>
__device__ void load_activations(const StripArgs& args, const StripPlaces& shared) {
  tile::prefetch_map(&args.x);
  wait_for_earlier_kernels();
  for_each_pair(args, shared, [&](const StripItem& item, int pair, int place) {
    tile::arrive_expecting(shared.full[place], Stage::kXBytes);
    tile::load_box(shared.stages + place * args.plan.stage_bytes, &args.x,
                   {0, item.group * kStripGroup, 2 * pair, 0}, shared.full[place]);
  });
}

// ---- a warp's share -----------------------------------------------------------------------------

template <Format F, ScaleMode S, bool Z, typename T, int kTokens>
struct StripWarp {
  using Stage = StripStage<F, T, kTokens>;
  using Tiles = TileFormat<F, T>;
  static constexpr int kTiles = kTokens / 8;

  const StripArgs& args;
  const StripPlaces& shared;
  int lane, tile, share;  // tile: of the strip; share: of the tile's warps

  __device__ void load_pair(const char* stage, SlabPair<Tiles::kWords>& pair) const {
    const char* codes = stage + Stage::kXBytes;
    const char* scales = codes + args.plan.tiles * Stage::kCodeBytes;
#pragma unroll
    for (int slab = 0; slab < 2; ++slab) {
      load_staged_words(codes + tile * Stage::kCodeBytes, slab, lane, pair.words[slab]);
    }
    load_staged_scales<F, S, Z>(scales + tile * args.boxes.scale_bytes,
                                scales + args.plan.zeros_at + tile * args.boxes.zero_bytes,
                                args.boxes.block_shift, lane, pair.scales);
  }

  // Multiplies with one slab of x: a lane has 16 neighbours of a token, in two vectors of a
  // swizzled row.
  __device__ void multiply(const Decoded<S>& decoded, const char* x,
                           float (&sums)[kTiles][4]) const {
    const int row = lane / 4, vector = lane % 4 * 2;
#pragma unroll
    for (int c = 0; c < kTiles; ++c) {
      const char* mine = x + c * 1024 + row * 128;
      multiply_slab<S, T>(decoded, *reinterpret_cast<const uint4*>(mine + (vector ^ row) * 16),
                          *reinterpret_cast<const uint4*>(mine + ((vector + 1) ^ row) * 16),
                          sums[c]);
    }
  }

  // Runs the pairs of a strip, whose first pair is number `first` of the block's. The number of
  // stages is a multiple of `shares`, so a stage always belongs to the warps of the same share, and
  // these see all its phases. A warp that missed a phase would mistake the next one for it.
  __device__ void run(int first, RowState& rows, float (&sums)[kTiles][4]) const {
    const StripPlan& plan = args.plan;
    int number = first + (share + plan.shares - first % plan.shares) % plan.shares;
    StripRing ring(number, plan.stages);
    for (; number < first + args.pairs;
         number += plan.shares, ring.advance(plan.shares, plan.stages)) {
      const char* stage = shared.stages + ring.place * plan.stage_bytes;
      tile::wait(shared.full[ring.place], ring.parity);
      SlabPair<Tiles::kWords> codes;
      load_pair(stage, codes);
#pragma unroll
      for (int slab = 0; slab < 2; ++slab) {
        Decoded<S> decoded;
        decode_slab<F, S, Z, T>(codes, slab, rows, decoded);
        multiply(decoded, stage + slab * Stage::kSlabBytes, sums);
      }
      __syncwarp();
      if (lane == 0) tile::arrive(shared.empty[ring.place]);
    }
  }
};

// ---- the end of a strip -------------------------------------------------------------------------

// The scale and bias of features: each thread reads one feature's at the start, for the end.
struct StripEnd {
  std::int64_t n = -1;  // none
  float row_scale = 0, bias = 0;

  __device__ StripEnd(const StripArgs& args, int strip) {
    const int features = args.plan.tiles * kTileHeight, row = static_cast<int>(threadIdx.x);
    const std::int64_t mine = std::int64_t{strip} * features + row;
    if (row >= features || mine >= args.n) return;
    n = mine;
    row_scale = args.row_scales[n];
  }
  // Called once earlier kernels have ended: one of them may have written the bias.
  __device__ void load_bias(const StripArgs& args) {
    if (n >= 0 && args.epilogue.bias.given()) bias = args.epilogue.bias[n];
  }
  __device__ void put(const StripArgs& args, const StripPlaces& shared) const {
    if (static_cast<int>(threadIdx.x) >= args.plan.tiles * kTileHeight) return;
    shared.row_scales[threadIdx.x] = row_scale;
    shared.bias[threadIdx.x] = bias;
  }
};

// One thread for each tile, token (their number rounded up to a power of two) and feature.
template <int kTokens>
__device__ void strip_epilogue(const StripArgs& args, const StripItem& item, float gain,
                               const StripPlaces& shared) {
  constexpr int kSlot = slot_size(kTokens);
  const StripPlan& plan = args.plan;
  const int features = plan.tiles * kTileHeight, log2 = args.m_log2;
  for (int i = static_cast<int>(threadIdx.x); i < features << log2; i += plan.warps() * 32) {
    const int row = i % kTileHeight, of_group = (i / kTileHeight) & ((1 << log2) - 1);
    const int v = i / kTileHeight >> log2, feature = v * kTileHeight + row;
    const int m = item.group * kStripGroup + of_group;
    const std::int64_t n = std::int64_t{item.strip} * features + feature;
    if (m >= args.m || n >= args.n) continue;
    const float* from = shared.slots + v * plan.shares * kSlot + of_group * kSlotPitch + row;
    float sum = 0;
#pragma unroll 1  // a short end of the kernel, in instructions too
    for (int s = 0; s < plan.shares; ++s) sum += from[s * kSlot];
    float value = sum * (gain * shared.row_scales[feature]) + shared.bias[feature];
    if (args.epilogue.activation != Activation::none) {
      value = activate_apart(args.epilogue.activation, value);
    }
    args.epilogue.store(value, m, n);
  }
}

// ---- the kernel ---------------------------------------------------------------------------------

template <Format F, ScaleMode S, bool Z, typename T, int kTokens>
__global__ void __launch_bounds__(kMostStripThreads, 1)
    strips_kernel(const __grid_constant__ StripArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Stage = StripStage<F, T, kTokens>;
  const StripPlan& plan = args.plan;
  const StripPlaces shared(plan, kTokens);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int warp = __shfl_sync(0xffffffffu, thread / 32, 0), threads = plan.warps() * 32;
  if (thread == 0) {
    for (int i = 0; i < plan.stages; ++i) {
      tile::init_barrier(shared.full[i], 2);  // weights, activations
      tile::init_barrier(shared.empty[i], static_cast<std::uint32_t>(plan.tiles));
    }
    tile::publish_barriers();
  }
  if constexpr (F == Format::nf4) fill_nf4_table<T>(shared.nf4_table);
  __syncthreads();
  let_next_kernel_start();

  if (warp >= plan.warps()) {
    if (lane != 0) return;
    if (warp == plan.warps()) {
      load_weights<Stage, S != ScaleMode::none, Z>(args, shared);
    } else {
      load_activations<Stage>(args, shared);
    }
    return;
  }
  const StripWarp<F, S, Z, T, kTokens> mine{.args = args,
                                            .shared = shared,
                                            .lane = lane,
                                            .tile = warp / plan.shares,
                                            .share = warp % plan.shares};
  RowState rows = no_rows<F, T>(shared.nf4_table, lane);
  int first = 0;
  for (int number = static_cast<int>(blockIdx.x); number < plan.items();
       number += static_cast<int>(gridDim.x), first += args.pairs) {
    const StripItem item(plan, number);
    StripEnd end(args, item.strip);
    // Tiles beyond the matrix repeat the last tile.
    const int tile = min(item.strip * plan.tiles + mine.tile, args.tiles - 1);
    start_tile<F, S, Z, T>({}, args.row_scales + tile * kTileHeight, tile, lane, rows);
    if (first == 0) wait_for_earlier_kernels();
    end.load_bias(args);
    float sums[kTokens / 8][4] = {};
    mine.run(first, rows, sums);
    end.put(args, shared);
    put_sums<kTokens>(shared.slots + warp * slot_size(kTokens), lane, sums);
    tile::barrier_sync(kStripBarrier, threads);
    strip_epilogue<kTokens>(args, item, TileFormat<F, T>::kGain, shared);
    tile::barrier_sync(kStripBarrier, threads);  // all slots have been read
  }
#endif
}

}  // namespace tessera::cuda
