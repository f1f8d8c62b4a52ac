// linear() of many rows of activations on Hopper: weights are decoded in registers and go from
// there into the tensor cores (wgmma), which take the activations from shared memory.
//
// A block makes a tile of 256 features by kTokens rows of x at a time. Weights are the 64 rows of
// A, so that a warpgroup's registers hold what its lanes have decoded; x is B:
//
//                     tokens (N: 64 or 128)
//                   +--------------------------+
//   x (shared)   k  |  slab: 64 x N, swizzled  |
//                   +--------------------------+
//        k
//     +--------+    +--------------------------+
//     | 64 rows|    |  sums of warpgroup 0     |   warp w of it: tile w of the weight, 16 rows
//     +--------+    +--------------------------+
//     | 64 rows|    |  sums of warpgroup 1     |
//     +--------+    +--------------------------+
//        ...           ... up to warpgroup 3
//      W, decoded
//
// While the products of some warpgroups run, others decode; with 128 tokens each also decodes its
// own next half of a slab.
//
// One more thread runs ahead: for each pair of slabs it has the copy engine bring the codes and
// scales of the block's 16 tiles and the activations into one of kStages places; the warps give a
// place back when their products with it have ended. Blocks are as many as the GPU has
// multiprocessors and share the work evenly (panel_work.cuh); what is done with the sums says
// panel_finish.cuh.
//
// Activations come in the order of tile_layout.h, as packed by pack_panels: for each kTokens rows
// and each slab [kTokens][64], each row of 128 bytes swizzled as wgmma wants it, so that a pair is
// one piece of memory.
#pragma once

#include <cuda.h>

#include "cuda/dynamic_shared.cuh"
#include "cuda/linear/fragments.cuh"
#include "cuda/linear/panel_finish.cuh"
#include "cuda/linear/panel_work.cuh"
#include "cuda/linear/scales.cuh"
#include "cuda/linear/tile_layout.h"
#include "cuda/tile/grid_dependency.cuh"
#include "cuda/tile/mbarrier.cuh"
#include "cuda/tile/tma.cuh"
#include "cuda/tile/warpgroup.cuh"
#include "cuda/tile/wgmma.cuh"

namespace tessera::cuda {

inline constexpr int kPanelRows = 256;                        // features of a block
inline constexpr int kPanelTiles = kPanelRows / kTileHeight;  // 16, one for each warp
inline constexpr int kPanelWarps = kPanelTiles;
inline constexpr int kPanelThreads = kPanelWarps * 32 + 128;  // and a warpgroup that loads

// Registers: a block of so many threads gets 96 for each; who loads gives most of them to the
// others.
inline constexpr int kPanelRegisters = 112, kPanelLoadRegisters = 32;
static_assert(kPanelWarps * 32 * kPanelRegisters + 128 * kPanelLoadRegisters <= kPanelThreads * 96);

struct PanelArgs {
  // [tiles, bytes of a row of tiles]: what a pair has of the codes and so on is a box of them.
  CUtensorMap codes{}, scales{}, zeros{};
  int scale_bytes = 0, zero_bytes = 0;  // of a tile's pair
  int scale_shift = 0;                  // log2 of the pairs that share them
  int block_shift = 0;                  // TileScales::shift
  int tiles = 0;
  const char* x = nullptr;  // packed
  PanelWork work{};
  PanelParts parts{};
  PanelOutput output;
};

// What lies in shared memory for one pair.
template <Format F, ScaleMode S, bool Z, typename T, int kTokens>
struct PanelStage {
  static constexpr int kCodeBytes = TileFormat<F, T>::kWords * 4 * 32 * 2;  // of a tile's pair
  // Of f32 there are 2 or, where blocks are less than a slab, up to 8 to a row.
  static constexpr int kMostScaleBytes = S == ScaleMode::none   ? 0
                                         : F == Format::nvfp4   ? 128
                                         : F == Format::mxfp4   ? 64
                                         : S == ScaleMode::sums ? 128
                                                                : 512;
  static constexpr int kMostZeroBytes = Z ? kMostScaleBytes / 4 : 0;

  static constexpr int kX = 0;
  static constexpr int kXBytes = 2 * kTokens * 128;
  static constexpr int kCodes = kX + kXBytes;
  static constexpr int kScales = kCodes + kPanelTiles * kCodeBytes;
  static constexpr int kZerosAt = kScales + kPanelTiles * kMostScaleBytes;
  static constexpr int kBytes = (kZerosAt + kPanelTiles * kMostZeroBytes + 1023) / 1024 * 1024;

  // Beside the stages: the table of nf4, where sums become rows of the output, barriers.
  static constexpr int kTableBytes = F == Format::nf4 ? kNf4TableBytes : 0;
  static constexpr int kOutputBytes = kPanelWarps / 4 * kStagedBytes;
  static constexpr int kBesides = kTableBytes + kOutputBytes + 1024 + 256;  // 1024: to align stages
  static constexpr int kRoom = 227 * 1024 - kBesides;
  static constexpr int kStages = kRoom / kBytes < 8 ? kRoom / kBytes : 8;
  static_assert(kStages >= 2);
  static constexpr int kAllBytes = kStages * kBytes + kBesides;
};

// ---- the thread that loads ----------------------------------------------------------------------

// Goes from pair to pair of all that the block has to do.
struct PanelCursor {
  Segments segments;
  Segment segment;
  bool valid;

  __device__ explicit PanelCursor(const PanelWork& work) : segments(work) {
    valid = segments.next(segment);
  }
  __device__ void advance() {
    if (++segment.first == segment.end) valid = segments.next(segment);
  }
};

// Of the weight, in this block's panel.
__device__ inline int first_tile(const PanelArgs& args, const Segment& segment) {
  return segment.tile / args.work.token_blocks * kPanelTiles;
}

template <typename Stage>
__device__ inline void load_weights(const PanelArgs& args, const PanelCursor& at, char* stage,
                                    std::uint64_t& barrier) {
  const int pair = at.segment.first;
  const int tile = first_tile(args, at.segment);
  const int block = pair >> args.scale_shift;
  tile::arrive_expecting(
      barrier,
      Stage::kXBytes + kPanelTiles * (Stage::kCodeBytes + args.scale_bytes + args.zero_bytes));
  tile::load_box(stage + Stage::kCodes, &args.codes, {pair * (Stage::kCodeBytes / 8), tile},
                 barrier);
  if (Stage::kMostScaleBytes > 0) {
    tile::load_box(stage + Stage::kScales, &args.scales, {block * (args.scale_bytes / 8), tile},
                   barrier);
  }
  if (Stage::kMostZeroBytes > 0) {
    tile::load_box(stage + Stage::kZerosAt, &args.zeros, {block * (args.zero_bytes / 8), tile},
                   barrier);
  }
}

template <typename Stage>
__device__ inline void load_x(const PanelArgs& args, const PanelCursor& at, char* stage,
                              std::uint64_t& barrier) {
  const int token_block = at.segment.tile % args.work.token_blocks;
  const std::int64_t pair = std::int64_t{token_block} * args.work.pairs + at.segment.first;
  tile::copy_bulk(stage + Stage::kX, args.x + pair * Stage::kXBytes, Stage::kXBytes, barrier);
}

template <typename Stage>
__device__ void load_pairs(const PanelArgs& args, char* stages, std::uint64_t* full,
                           std::uint64_t* empty) {
  // Weights do not wait for the kernel ahead, which packs x.
  PanelCursor at(args.work), x_at(args.work);
  for (int i = 0; i < Stage::kStages && at.valid; ++i, at.advance()) {
    load_weights<Stage>(args, at, stages + i * Stage::kBytes, full[i]);
  }
  wait_for_earlier_kernels();
  for (int i = 0; i < Stage::kStages && x_at.valid; ++i, x_at.advance()) {
    load_x<Stage>(args, x_at, stages + i * Stage::kBytes, full[i]);
  }
  tile::Ring<Stage::kStages> ring;
  for (; at.valid; at.advance(), ring.advance()) {
    char* stage = stages + ring.place * Stage::kBytes;
    tile::wait(empty[ring.place], ring.parity);
    load_weights<Stage>(args, at, stage, full[ring.place]);
    load_x<Stage>(args, at, stage, full[ring.place]);
  }
}

// ---- the warpgroups -----------------------------------------------------------------------------

// The place of one warp's share in a stage, and its progress through them.
template <Format F, ScaleMode S, bool Z, typename T, int kTokens>
struct PanelWarp {
  using Stage = PanelStage<F, S, Z, T, kTokens>;
  using Wgmma = tile::Wgmma<kTokens>;
  using Element = std::conditional_t<std::is_same_v<T, Half>, __half, __nv_bfloat16>;
  static constexpr int kWords = TileFormat<F, T>::kWords, kVectors = kWords / 4;
  // Steps of the tensor cores, 16 deep, that are decoded and started together, and how many such
  // groups there are registers for. Measured: with 64 tokens one group of a whole slab is best, the
  // other warpgroups fill the time; with 128 two of half a slab are as good and take no more.
  static constexpr int kSteps = kTokens > 64 ? 2 : 4, kAhead = kTokens > 64 ? 2 : 1;

  const PanelArgs& args;
  const char* stages;
  std::uint64_t *full, *empty;
  int lane, warp;
  tile::Ring<Stage::kStages> ring{};

  __device__ void load_slab(const char* stage, int slab, std::uint32_t (&words)[kWords]) const {
    const auto* codes =
        reinterpret_cast<const uint4*>(stage + Stage::kCodes + warp * Stage::kCodeBytes);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      store_words(codes[(slab * kVectors + i) * 32 + lane], words + 4 * i);
    }
  }

  __device__ void load_raw(const char* stage, RawScales& raw) const {
    if constexpr (S != ScaleMode::none) {
      TileScales here{.scales = stage + Stage::kScales + warp * args.scale_bytes,
                      .zeros = nullptr,
                      .shift = args.block_shift};
      if constexpr (Z) {
        here.zeros =
            reinterpret_cast<const std::uint8_t*>(stage) + Stage::kZerosAt + warp * args.zero_bytes;
      }
      load_scales<F, S, Z>(here, 0, lane, raw);
    }
  }

  // Steps [first, first + kSteps) of a slab; the compiler leaves out what goes into others. The
  // scales of blocks always meet the fragments here.
  __device__ void decode(std::uint32_t (&words)[kWords], const RawScales& raw, int slab, int first,
                         RowState& rows, Pair (&a)[kSteps][4]) const {
    // Words of their own, lest all steps are decoded at once and kept.
#pragma unroll
    for (std::uint32_t& word : words) asm volatile("" : "+r"(word));
    Fragments all;
    decode_words<F, S, Z, T>(words, raw, slab, rows, all);
    if constexpr (S != ScaleMode::none) scale_fragments<F, T>(raw, slab, rows.inverse, all);
#pragma unroll
    for (int j = 0; j < kSteps; ++j) {
#pragma unroll
      for (int r = 0; r < 4; ++r) a[j][r] = all[first + j][r];
    }
  }

  __device__ void start_products(const char* stage, int slab, int first, const Pair (&a)[kSteps][4],
                                 float (&sums)[kTokens / 2]) const {
    const std::uint64_t b = tile::depth_contiguous(stage + Stage::kX + slab * (Stage::kXBytes / 2));
    tile::wgmma_fence();
#pragma unroll
    for (int j = 0; j < kSteps; ++j) {
      Wgmma::template registers<Element, tile::BLayout::depth_contiguous>(
          sums, a[j], tile::moved(b, 32 * (first + j)));
    }
    tile::wgmma_commit();
  }

  __device__ void give_back(int place) const {
    if (lane == 0) tile::arrive(empty[place]);
  }

  __device__ void multiply(int first_pair, int end, RowState& rows, float (&sums)[kTokens / 2]) {
    constexpr int kGroups = 8 / kSteps;  // of a pair
    Pair a[kAhead][kSteps][4];
    int before = -1;  // the place before this one
    for (int pair = first_pair; pair < end; ++pair, ring.advance()) {
      const char* stage = stages + ring.place * Stage::kBytes;
      tile::wait(full[ring.place], ring.parity);
      RawScales raw{};
      load_raw(stage, raw);
      std::uint32_t words[2][kWords];
      load_slab(stage, 0, words[0]);
      load_slab(stage, 1, words[1]);
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        const int slab = group * kSteps / 4, first = group * kSteps % 4;
        tile::wgmma_wait<kAhead - 1>();  // a[group % kAhead] is free
        if (group == kAhead - 1 && before >= 0) give_back(before);
        decode(words[slab], raw, slab, first, rows, a[group % kAhead]);
        start_products(stage, slab, first, a[group % kAhead], sums);
      }
      before = ring.place;
    }
    tile::wgmma_wait<0>();
    give_back(before);
    tile::pin(sums);
  }

  __device__ void run(const Pair* nf4_table, char* staged) {
    Segments segments(args.work);
    Segment segment;
    RowState rows = no_rows<F, T>(nf4_table, lane);
    bool unannounced = false;
    while (segments.next(segment)) {
      const int tile = first_tile(args, segment) + warp;
      // Tiles beyond the matrix repeat the last one's.
      const int last = min(tile, args.tiles - 1);
      start_tile<F, S, Z, T>({}, args.output.row_scales + last * kTileHeight, last, lane, rows);
      prefetch_for_tile(args.output, std::int64_t{tile} * kTileHeight);
      float sums[kTokens / 2];
#pragma unroll
      for (float& sum : sums) sum = 0;
      for (int pair = segment.first; pair < segment.end;) {
        // A part's sums are on their way: one more pair, and they have arrived.
        const int end = unannounced ? pair + 1 : segment.end;
        multiply(pair, end, rows, sums);
        if (unannounced) announce_part<kPanelWarps>(args.parts, segments.run());
        unannounced = false;
        pair = end;
      }
      if (segment.first > 0) {
        put_part<kTokens, kPanelWarps>(args.parts, segments.run(), sums);
        unannounced = true;
        continue;
      }
      if (segment.end < args.work.pairs) {
        const int first = segments.run() + 1;
        int end = first + 1;
        while (segments.reaches(end, segment.tile)) ++end;
        wait_for_parts<kPanelWarps>(args.parts, first, end - first);
        for (int r = first; r < end; ++r) {
          add_part<kTokens, kPanelWarps>(args.parts, r, sums);
        }
      }
      const int token_block = segment.tile % args.work.token_blocks;
      finish_tile(args.output, TileFormat<F, T>::kGain,
                  WarpOutput(args.output, std::int64_t{token_block} * kTokens,
                             std::int64_t{tile} * kTileHeight),
                  sums, staged + warp / 4 * kStagedBytes);
    }
    if (unannounced) announce_part<kPanelWarps>(args.parts, segments.run());
  }
};

template <Format F, ScaleMode S, bool Z, typename T, int kTokens>
__global__ void __launch_bounds__(kPanelThreads, 1)
    panel_rows(const __grid_constant__ PanelArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Stage = PanelStage<F, S, Z, T, kTokens>;
  char* stages = dynamic_shared<char>();
  stages += (1024 - static_cast<std::uint32_t>(__cvta_generic_to_shared(stages)) % 1024) % 1024;
  char* besides = stages + Stage::kStages * Stage::kBytes;
  Pair* table = reinterpret_cast<Pair*>(besides);
  auto* full = reinterpret_cast<std::uint64_t*>(besides + Stage::kTableBytes + Stage::kOutputBytes);
  std::uint64_t* empty = full + Stage::kStages;
  if (threadIdx.x == 0) {
    for (int i = 0; i < Stage::kStages; ++i) {
      tile::init_barrier(full[i], 1);
      tile::init_barrier(empty[i], kPanelWarps);  // all warps that multiply
    }
    tile::publish_barriers();
  }
  if constexpr (F == Format::nf4) fill_nf4_table<T>(table);
  __syncthreads();
  let_next_kernel_start();

  if (threadIdx.x >= kPanelWarps * 32) {
    tile::give_up_registers<kPanelLoadRegisters>();
    if (threadIdx.x == kPanelWarps * 32) load_pairs<Stage>(args, stages, full, empty);
  } else {
    tile::take_registers<kPanelRegisters>();
    const int thread = static_cast<int>(threadIdx.x);
    PanelWarp<F, S, Z, T, kTokens> warp{.args = args,
                                        .stages = stages,
                                        .full = full,
                                        .empty = empty,
                                        .lane = thread % 32,
                                        .warp = __shfl_sync(0xffffffffu, thread / 32, 0)};
    warp.run(table, besides + Stage::kTableBytes);
  }
#endif
}

}  // namespace tessera::cuda
