// linear() of many rows of activations on Hopper: weights are decoded in registers and go from
// there into the tensor cores (wgmma), which take the activations from shared memory.
//
// A block makes 128 features of up to kTokens rows of x. Weights are the 64 rows of A, so that a
// warpgroup's registers hold what its lanes have decoded; x is B:
//
//                     tokens (N: 16, 64 or 256)
//                   +--------------------------+
//   x (shared)   k  |  slab: 64 x N, swizzled  |
//                   +--------------------------+
//        k
//     +--------+    +--------------------------+
//     | 64 rows|    |  sums of warpgroup 0     |   warp w of it: tile w, 16 rows
//     +--------+    +--------------------------+
//     | 64 rows|    |  sums of warpgroup 1     |
//     +--------+    +--------------------------+
//      W, decoded
//
// With few tokens decoding is most of the work, and it wants many warps: two more warpgroups take
// every other slab, and the sums of both are added in the end. With many tokens two warpgroups fill
// the registers; one decodes while the products of the other run.
//
// One more warp runs ahead: for each pair of slabs it has the copy engine bring the codes and
// scales of the block's eight tiles and the activations into one of kStages places; the warpgroups
// give a place back when their products with it have ended.
//
// Activations come in the order of tile_layout.h, as packed by pack_panels: for each kTokens rows
// and each slab [kTokens][64], each row of 128 bytes swizzled as wgmma wants it, so that a pair is
// one piece of memory.
#pragma once

#include "cuda/dynamic_shared.cuh"
#include "cuda/linear/epilogue.cuh"
#include "cuda/linear/fragments.cuh"
#include "cuda/linear/matrix.h"
#include "cuda/linear/scales.cuh"
#include "cuda/linear/tile_layout.h"
#include "cuda/tile/grid_dependency.cuh"
#include "cuda/tile/mbarrier.cuh"
#include "cuda/tile/warpgroup.cuh"
#include "cuda/tile/wgmma.cuh"

namespace tessera::cuda {

inline constexpr int kPanelRows = 128;                        // features of a block
inline constexpr int kPanelTiles = kPanelRows / kTileHeight;  // 8

struct PanelArgs {
  const char* codes;
  TileScales scales;
  const float* row_scales;
  int tiles, pairs;
  const char* x;  // packed
  std::int64_t rows, out_features;
  Finish<MatrixRows> finish;
  int scale_bytes = 0, zero_bytes = 0;  // of a tile's pair
  int scale_shift = 0;                  // log2 of the pairs that share them
};

// What lies in shared memory for one pair.
template <Format F, bool Z, typename T, int kTokens>
struct PanelStage {
  static constexpr int kSplit = kTokens <= 64 ? 2 : 1;  // warpgroups that share a tile's slabs
  static constexpr int kWarps = 8 * kSplit;             // that multiply
  static constexpr int kThreads = kWarps * 32 + 128;    // and a warpgroup of which a warp loads
  static constexpr int kCodeBytes = TileFormat<F, T>::kWords * 4 * 32 * 2;  // of a tile's pair
  static constexpr int kMostScaleBytes = F == Format::nvfp4 ? 128 : F == Format::mxfp4 ? 64 : 512;
  static constexpr int kMostZeroBytes = Z ? 128 : 0;

  static constexpr int kPairs = kTokens > 64                                   ? 1
                                : kTokens > 16 || !TileFormat<F, T>::kFourBits ? 2
                                                                               : 4;

  static constexpr int kX = 0;
  static constexpr int kXBytes = 2 * kTokens * 128;  // of a pair
  static constexpr int kCodes = kX + kPairs * kXBytes;
  static constexpr int kScales = kCodes + kPanelTiles * kPairs * kCodeBytes;
  static constexpr int kZerosAt = kScales + kPanelTiles * kPairs * kMostScaleBytes;
  static constexpr int kBytes =
      (kZerosAt + kPanelTiles * kPairs * kMostZeroBytes + 1023) / 1024 * 1024;
  // As many as fit, beside the table of nf4 and the barriers; eight are enough for any latency.
  static constexpr int kRoom = 226 * 1024 - 2048 - (F == Format::nf4 ? kNf4TableBytes : 0);
  static constexpr int kStages = kRoom / kBytes < 8 ? kRoom / kBytes : 8;
  static_assert(kStages >= 2);
  static constexpr int kAllBytes =
      kStages * kBytes + 2048 + (F == Format::nf4 ? kNf4TableBytes : 0);
};

__device__ inline void copy_bulk(void* to, const void* from, std::uint32_t bytes,
                                 std::uint64_t& barrier) {
  ::cuda::ptx::cp_async_bulk(::cuda::ptx::space_cluster, ::cuda::ptx::space_global, to, from, bytes,
                             &barrier);
}

// ---- the warp that loads ------------------------------------------------------------------------

// Lanes 0 to 7 each bring the codes of a tile, the next eight its scales, the next its zero points,
// lane 24 the activations.
template <Format F, bool Z, typename T, int kTokens>
__device__ void load_pairs(const PanelArgs& args, int first_tile, std::int64_t token_block,
                           char* stages, std::uint64_t* full, std::uint64_t* empty) {
  using Stage = PanelStage<F, Z, T, kTokens>;
  const int lane = threadIdx.x % 32;
  const int tiles = min(kPanelTiles, args.tiles - first_tile);
  const int kind = lane / 8, tile = lane % 8;
  const char* x = args.x + token_block * args.pairs * Stage::kXBytes;
  bool waited = false;
  tile::Ring<Stage::kStages> ring;
  for (int pair = 0; pair < args.pairs; pair += Stage::kPairs, ring.advance()) {
    const int pairs = min(Stage::kPairs, args.pairs - pair);
    const int blocks = ((pair + pairs - 1) >> args.scale_shift) - (pair >> args.scale_shift) + 1;
    const std::uint32_t codes = pairs * Stage::kCodeBytes, scales = blocks * args.scale_bytes;
    const std::uint32_t zeros = blocks * args.zero_bytes, tokens = pairs * Stage::kXBytes;
    char* stage = stages + ring.place * Stage::kBytes;
    std::uint64_t& barrier = full[ring.place];
    tile::wait(empty[ring.place], ring.parity ^ 1);
    if (lane == 0) tile::arrive_expecting(barrier, tokens + tiles * (codes + scales + zeros));
    __syncwarp();
    const std::int64_t at = static_cast<std::int64_t>(first_tile + tile) * args.pairs + pair;
    const std::int64_t block = at >> args.scale_shift;
    if (kind == 0 && tile < tiles) {
      copy_bulk(stage + Stage::kCodes + tile * Stage::kPairs * Stage::kCodeBytes,
                args.codes + at * Stage::kCodeBytes, codes, barrier);
    } else if (kind == 1 && tile < tiles && scales > 0) {
      copy_bulk(stage + Stage::kScales + tile * Stage::kPairs * Stage::kMostScaleBytes,
                static_cast<const char*>(args.scales.scales) + block * args.scale_bytes, scales,
                barrier);
    } else if (kind == 2 && tile < tiles && zeros > 0) {
      copy_bulk(stage + Stage::kZerosAt + tile * Stage::kPairs * Stage::kMostZeroBytes,
                args.scales.zeros + block * args.zero_bytes, zeros, barrier);
    } else if (lane == 24) {
      if (!waited) wait_for_earlier_kernels();  // x is what the kernel ahead has packed
      waited = true;
      copy_bulk(stage + Stage::kX, x + static_cast<std::int64_t>(pair) * Stage::kXBytes, tokens,
                barrier);
    }
  }
}

// ---- the warpgroups -----------------------------------------------------------------------------

template <Format F, ScaleMode S, bool Z, typename T, int kTokens>
__device__ void decode_for_panel(const PanelArgs& args, const char* stage, int tile, int pair,
                                 int slab, int lane, RowState& rows, Fragments& a) {
  using Stage = PanelStage<F, Z, T, kTokens>;
  constexpr int kWords = TileFormat<F, T>::kWords, kVectors = kWords / 4;
  std::uint32_t words[kWords];
  const int of_stage = pair % Stage::kPairs;
  const auto* codes = reinterpret_cast<const uint4*>(
      stage + Stage::kCodes + (tile * Stage::kPairs + of_stage) * Stage::kCodeBytes);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    store_words(codes[(slab * kVectors + i) * 32 + lane], words + 4 * i);
  }
  RawScales raw{};
  if constexpr (S != ScaleMode::none) {
    const int block = (pair >> args.scale_shift) - ((pair - of_stage) >> args.scale_shift);
    TileScales here = args.scales;
    here.scales = stage + Stage::kScales + tile * Stage::kPairs * Stage::kMostScaleBytes +
                  block * args.scale_bytes;
    if constexpr (Z) {
      here.zeros = reinterpret_cast<const std::uint8_t*>(stage) + Stage::kZerosAt +
                   tile * Stage::kPairs * Stage::kMostZeroBytes + block * args.zero_bytes;
    }
    load_scales<F, S, Z>(here, 0, lane, raw);
  }
  decode_words<F, S, Z, T>(words, raw, slab, rows, a);
  if constexpr (S != ScaleMode::none) scale_fragments<F, T>(raw, slab, rows.inverse, a);
}

// All sums of the block, in the place of what has been multiplied: [token][feature], rows apart by
// four banks more than their length.
inline constexpr int kPanelPitch = kPanelRows + 4;

template <int kTokens, int kSplit>
__device__ inline void put_panel(const float (&sums)[kTokens / 2], int tile, int slab, int lane,
                                 float* panel) {
#pragma unroll
  for (int turn = 0; turn < kSplit; ++turn) {
    tile::barrier_sync(1, 256 * kSplit);  // nobody multiplies any more; the turn before is over
    if (kSplit > 1 && slab != turn) continue;
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i) {
      const int token = i / 4 * 8 + lane % 4 * 2 + i % 2;
      float& to = panel[token * kPanelPitch + tile * kTileHeight + lane / 4 + i / 2 % 2 * 8];
      to = turn == 0 ? sums[i] : to + sums[i];
    }
  }
  tile::barrier_sync(1, 256 * kSplit);
}

// The same for every token: out = act(sum + bias) + residual.
template <Format F, typename T, int kTokens, int kSplit>
__device__ void finish_panel(const PanelArgs& args, int first_tile, std::int64_t first_token,
                             const float* panel) {
  wait_for_earlier_kernels();
  const int tokens = static_cast<int>(min(args.rows - first_token, std::int64_t{kTokens}));
  const int feature = threadIdx.x % kPanelRows;
  const std::int64_t n = static_cast<std::int64_t>(first_tile) * kTileHeight + feature;
  if (n >= args.out_features) return;
  const float scale = TileFormat<F, T>::kGain * args.row_scales[n];
  for (int token = threadIdx.x / kPanelRows; token < tokens; token += 2 * kSplit) {
    const float product = panel[token * kPanelPitch + feature] * scale;
    args.finish.store(args.finish.value(product, n), first_token + token, n);
  }
}

// S: how the scales of blocks lie; they always meet the fragments here.
template <Format F, ScaleMode S, bool Z, typename T, int kTokens>
__device__ void multiply_pairs(const PanelArgs& args, int first_tile, const char* stages,
                               std::uint64_t* full, std::uint64_t* empty, const Pair* nf4_table,
                               float* panel) {
  using Stage = PanelStage<F, Z, T, kTokens>;
  using Wgmma = tile::Wgmma<kTokens>;
  using Element = std::conditional_t<std::is_same_v<T, Half>, __half, __nv_bfloat16>;
  const int lane = threadIdx.x % 32, my_tile = threadIdx.x / 32 % kPanelTiles;
  const int my_slab = threadIdx.x / 256;  // where slabs are shared
  // Tiles beyond the matrix repeat the last one.
  const int last = min(kPanelTiles, args.tiles - first_tile) - 1;
  const int tile = min(my_tile, last);

  RowState rows = no_rows<F, T>(nf4_table, lane);
  start_tile<F, S, Z, T>(args.scales, args.row_scales + (first_tile + tile) * kTileHeight,
                         first_tile + tile, lane, rows);

  float sums[kTokens / 2];
#pragma unroll
  for (float& sum : sums) sum = 0;
  constexpr int kSlabs = 2 / Stage::kSplit;  // of a pair, for this warpgroup
  Fragments a[kSlabs];
  tile::Ring<Stage::kStages> ring;
  int before = -1;  // the place before this one
  for (int first = 0; first < args.pairs; first += Stage::kPairs, ring.advance()) {
    const char* stage = stages + ring.place * Stage::kBytes;
    tile::wait(full[ring.place], ring.parity);
    const int end = min(args.pairs, first + Stage::kPairs);
    for (int pair = first; pair < end; ++pair) {
      tile::wgmma_wait<0>();
      if (pair == first && before >= 0 && lane == 0) tile::arrive(empty[before]);
#pragma unroll
      for (int s = 0; s < kSlabs; ++s) {
        decode_for_panel<F, S, Z, T, kTokens>(args, stage, tile, pair,
                                              Stage::kSplit == 1 ? s : my_slab, lane, rows, a[s]);
      }
      tile::wgmma_fence();
#pragma unroll
      for (int s = 0; s < kSlabs; ++s) {
        const int slab = 2 * (pair - first) + (Stage::kSplit == 1 ? s : my_slab);
        const std::uint64_t b =
            tile::depth_contiguous(stage + Stage::kX + slab * (Stage::kXBytes / 2));
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          Wgmma::template registers<Element, tile::BLayout::depth_contiguous>(
              sums, a[s][j], tile::moved(b, 32 * j));
        }
      }
      tile::wgmma_commit();
    }
    before = ring.place;
  }
  tile::wgmma_wait<0>();
  tile::pin(sums);

  put_panel<kTokens, Stage::kSplit>(sums, my_tile, my_slab, lane, panel);
}

template <Format F, ScaleMode S, bool Z, typename T, int kTokens>
__global__ void __launch_bounds__(PanelStage<F, Z, T, kTokens>::kThreads, 1)
    panel_rows(PanelArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Stage = PanelStage<F, Z, T, kTokens>;
  char* shared = dynamic_shared<char>();
  shared += (1024 - static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)) % 1024) % 1024;
  char* stages = shared;
  Pair* table = reinterpret_cast<Pair*>(stages + Stage::kStages * Stage::kBytes);
  auto* full = reinterpret_cast<std::uint64_t*>(reinterpret_cast<char*>(table) +
                                                (F == Format::nf4 ? kNf4TableBytes : 0));
  std::uint64_t* empty = full + Stage::kStages;
  if (threadIdx.x == 0) {
    for (int i = 0; i < Stage::kStages; ++i) {
      tile::init_barrier(full[i], 1);
      tile::init_barrier(empty[i], Stage::kWarps);  // one lane of each warp that multiplies
    }
    tile::publish_barriers();
  }
  if constexpr (F == Format::nf4) fill_nf4_table<T>(table);
  __syncthreads();
  let_next_kernel_start();

  // Neighbouring blocks share weights: all token blocks of a panel, then the next panel.
  const std::int64_t token_blocks = (args.rows + kTokens - 1) / kTokens;
  const std::int64_t token_block = blockIdx.x % token_blocks;
  const int first_tile = static_cast<int>(blockIdx.x / token_blocks) * kPanelTiles;
  if (threadIdx.x >= Stage::kWarps * 32) {
    if constexpr (Stage::kSplit == 1) tile::give_up_registers<40>();
    if (threadIdx.x < Stage::kWarps * 32 + 32) {
      load_pairs<F, Z, T, kTokens>(args, first_tile, token_block, stages, full, empty);
    }
  } else {
    if constexpr (Stage::kSplit == 1) tile::take_registers<232>();
    auto* panel = reinterpret_cast<float*>(stages);
    multiply_pairs<F, S, Z, T, kTokens>(args, first_tile, stages, full, empty, table, panel);
    finish_panel<F, T, kTokens, Stage::kSplit>(args, first_tile, token_block * kTokens, panel);
  }
#endif
}

}  // namespace tessera::cuda
