// Shared by the warps of a block of panels.cuh: the arguments, and the shared memory of one pair of
// slabs.
#pragma once

#include <cuda.h>

#include "cuda/linear/hopper/panel_epilogue.cuh"
#include "cuda/linear/hopper/panel_work.cuh"
#include "cuda/linear/layout/fragments.cuh"
#include "cuda/linear/layout/tile_boxes.h"
#include "cuda/linear/layout/tile_layout.h"
#include "cuda/linear/matrix.h"
#include "cuda/linear/plan/panel_plan.h"

namespace tessera::cuda {

inline constexpr int kPanelWarps = kPanelTiles;
inline constexpr int kPanelThreads = kPanelWarps * 32 + 128;  // and a loading warpgroup

// Registers: a block of this size starts with 96 for each thread; the loading warpgroup gives most
// of its registers to the others.
inline constexpr int kPanelRegisters = 112, kPanelLoadRegisters = 32;
static_assert(kPanelWarps * 32 * kPanelRegisters + 128 * kPanelLoadRegisters <= kPanelThreads * 96);

// The activations, [m, k].
struct PanelX {
  MatrixRows matrix{};
  std::int64_t m = 0;
  int k = 0;
  bool boxed = false;  // has a tensor map
};

// Warps that multiply: whole warpgroups.
__device__ inline int panel_warps(int block_tiles) { return (block_tiles + 3) / 4 * 4; }

struct PanelArgs {
  TileBoxes boxes{};
  TileBoxes up_boxes{};  // of a gated product: as many tiles of up
  CUtensorMap x_map{};   // of [m, k]
  int tiles = 0;         // of the weight
  int panel_tiles = 0;   // of a panel: at most kPanelTiles
  PanelX x{};
  PanelWork work{};
  PanelParts parts{};
  PanelOutput output;

  // If so, a block has panel_tiles tiles of gate and as many of up, both from the same tile on.
  __device__ bool gated() const { return output.up_row_scales != nullptr; }
};

// Each stage has three: x has arrived; everything is ready and in order; everything has been used.
// Each warp has one: its sums have arrived from other blocks (panel_split.cuh).
struct PanelBarriers {
  std::uint64_t *raw, *full, *empty, *split;

  __device__ PanelBarriers(std::uint64_t* memory, int stages)
      : raw(memory), full(raw + stages), empty(full + stages), split(empty + stages) {}
};

// The most bytes of a tile's pair.
template <Format F, ScaleMode S, bool Z, typename T>
struct PackedPair {
  static constexpr int kCodeBytes = TileFormat<F, T>::kWords * 4 * 32 * 2;
  // A row has 2 scales of f32 or, if blocks are smaller than a slab, up to 8.
  static constexpr int kMostScaleBytes = S == ScaleMode::none   ? 0
                                         : F == Format::nvfp4   ? 128
                                         : F == Format::mxfp4   ? 64
                                         : S == ScaleMode::sums ? 128
                                                                : 512;
  static constexpr int kMostZeroBytes = Z ? kMostScaleBytes / 4 : 0;
};

// The shared memory of one pair.
template <Format F, ScaleMode S, bool Z, typename T, int tokens, bool gated>
struct PanelStage : PackedPair<F, S, Z, T> {
  using Packed = PackedPair<F, S, Z, T>;
  static constexpr int kTokens = tokens;
  static constexpr bool kGated = gated;
  // The tiles of a block: in a gated product, half are gate's and half are up's.
  __device__ static int block_tiles(const PanelArgs& args) {
    return kGated ? 2 * args.panel_tiles : args.panel_tiles;
  }
  static constexpr int kX = 0;
  static constexpr int kXBytes = 2 * kTokens * 128;
  static constexpr int kCodes = kX + kXBytes;
  static constexpr int kScales = kCodes + kPanelTiles * Packed::kCodeBytes;
  static constexpr int kZerosAt = kScales + kPanelTiles * Packed::kMostScaleBytes;
  // Where the scales of up begin: the copy engine writes to multiples of 128 bytes.
  static constexpr int kUpScales = kPanelTiles / 2 * Packed::kMostScaleBytes;
  static constexpr int kUpZeros = kPanelTiles / 2 * Packed::kMostZeroBytes;
  static_assert(kUpScales % 128 == 0 && kUpZeros % 128 == 0);
  static constexpr int kBytes =
      (kZerosAt + kPanelTiles * Packed::kMostZeroBytes + 1023) / 1024 * 1024;

  // Besides the stages: the nf4 table, room to reorder sums, barriers.
  static constexpr int kTableBytes = F == Format::nf4 ? kNf4TableBytes : 0;
  static constexpr int kOutputBytes = kPanelWarps * kStagedBytes;
  static constexpr int kBarrierBytes = (3 * 8 + kPanelWarps) * 8;
  static constexpr int kBesides =
      kTableBytes + kOutputBytes + kBarrierBytes + 1024;  // 1024: to align stages
  static constexpr int kRoom = 227 * 1024 - kBesides;
  static constexpr int kStages = kRoom / kBytes < 8 ? kRoom / kBytes : 8;
  static_assert(kStages >= 2);
  static constexpr int kAllBytes = kStages * kBytes + kBesides;
};

}  // namespace tessera::cuda
