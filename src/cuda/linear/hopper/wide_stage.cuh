// Shared by the warps of a block of wide.cuh: their roles, and the layout of shared memory.
#pragma once

#include "cuda/linear/hopper/panel_stage.cuh"
#include "cuda/linear/layout/fragments.cuh"
#include "cuda/linear/layout/tile_layout.h"
#include "cuda/linear/plan/wide_plan.h"
#include "cuda/tile/hopper/mbarrier.cuh"

namespace tessera::cuda {

// Warps that multiply, in warpgroups of 64 features each, and warps that decode and start copies.
inline constexpr int kWideMultiplyWarps = 8, kWideDecodeWarps = 4;
inline constexpr int kWideThreads = (kWideMultiplyWarps + kWideDecodeWarps) * 32;
static_assert(kWideMultiplyWarps == kWideTiles);

// Registers: a block of this size starts with 168 for each thread. Sums of 64 x 256 take 128 in
// each thread that multiplies.
inline constexpr int kWideMultiplyRegisters = 184, kWideDecodeRegisters = 136;
static_assert(kWideMultiplyWarps * kWideMultiplyRegisters +
                  kWideDecodeWarps * kWideDecodeRegisters <=
              (kWideMultiplyWarps + kWideDecodeWarps) * 168);

// A ring of slabs that the tensor cores read, [features, 64] and [tokens, 64], and a ring of packed
// pairs of slabs.
template <Format F, ScaleMode S, bool Z, typename T>
struct WideStage {
  using Packed = PackedPair<F, S, Z, T>;
  static constexpr int kX = 0;
  static constexpr int kXBytes = kWideTokens * 128;
  static constexpr int kW = kX + kXBytes;
  static constexpr int kBytes = kW + kWideTiles * kTileHeight * 128;

  static constexpr int kCodes = 0;
  static constexpr int kScales = kCodes + kWideTiles * Packed::kCodeBytes;
  static constexpr int kZerosAt = kScales + kWideTiles * Packed::kMostScaleBytes;
  static constexpr int kPackedBytes = kZerosAt + kWideTiles * Packed::kMostZeroBytes;
  static constexpr int kPackedPairs = 2;
  // Where the scales of up begin in a gated product: the copy engine writes to multiples of 128
  // bytes.
  static constexpr int kUpScales = kWideTiles / 2 * Packed::kMostScaleBytes;
  static constexpr int kUpZeros = kWideTiles / 2 * Packed::kMostZeroBytes;
  static_assert(kUpScales % 128 == 0 && kUpZeros % 128 == 0);

  // Besides the slabs: packed pairs, the nf4 table, room to turn sums into rows of the output,
  // barriers.
  static constexpr int kTableBytes = F == Format::nf4 ? kNf4TableBytes : 0;
  static constexpr int kBarrierBytes = 128;
  static constexpr int output_bytes(int tokens) { return kWideMultiplyWarps / 4 * tokens * 128; }
  static constexpr int besides(int tokens) {
    return kPackedPairs * kPackedBytes + kTableBytes + output_bytes(tokens) + kBarrierBytes;
  }
  static constexpr int slabs_beside(int tokens) {
    const int slabs = (227 * 1024 - besides(tokens)) / kBytes;
    return slabs < 4 ? slabs : 4;
  }
  // Tokens whose output is assembled at a time (wide_epilogue.cuh). More tokens sync less often,
  // but no slab is given up for them.
  static constexpr int kFewTokens = 32, kManyTokens = 64;
  static constexpr int kSlabs = slabs_beside(kFewTokens);
  static_assert(kSlabs >= 3);
  static constexpr int kPieceTokens =
      slabs_beside(kManyTokens) == kSlabs ? kManyTokens : kFewTokens;
  static constexpr int kOutputBytes = output_bytes(kPieceTokens);
  static_assert(kOutputBytes >= kWideMultiplyWarps * kStagedBytes);
  static constexpr int kAllBytes = kSlabs * kBytes + besides(kPieceTokens);
};

// Each slab has two: x has arrived and weights are decoded; both have been multiplied. Each packed
// pair has two: it has arrived; it has been read.
template <typename Stage>
struct WideBarriers {
  std::uint64_t *full, *empty, *packed, *unpacked;

  __device__ explicit WideBarriers(std::uint64_t* memory)
      : full(memory),
        empty(full + Stage::kSlabs),
        packed(empty + Stage::kSlabs),
        unpacked(packed + Stage::kPackedPairs) {
    static_assert((2 * Stage::kSlabs + 2 * Stage::kPackedPairs) * 8 <= Stage::kBarrierBytes);
  }

  __device__ void init() const {
    for (int i = 0; i < Stage::kSlabs; ++i) {
      tile::init_barrier(full[i], 1 + kWideDecodeWarps * 32);  // x's loader; lanes that decode
      tile::init_barrier(empty[i], kWideCluster * kWideMultiplyWarps);
    }
    for (int i = 0; i < Stage::kPackedPairs; ++i) {
      tile::init_barrier(packed[i], Stage::Packed::kMostScaleBytes > 0 ? 2 : 1);
      tile::init_barrier(unpacked[i], kWideDecodeWarps);
    }
    tile::publish_barriers();
  }
};

}  // namespace tessera::cuda
