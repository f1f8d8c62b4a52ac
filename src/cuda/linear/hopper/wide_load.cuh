// The loads of wide.cuh, by the copy engine: pairs of packed slabs, two ahead of the decoding, and
// slabs of x as soon as there is room.
#pragma once

#include "cuda/linear/hopper/panel_load.cuh"
#include "cuda/linear/hopper/panel_work.cuh"
#include "cuda/linear/hopper/wide_stage.cuh"
#include "cuda/tile/grid_dependency.cuh"
#include "cuda/tile/hopper/mbarrier.cuh"
#include "cuda/tile/hopper/tma.cuh"

namespace tessera::cuda {

// ---- where a block is ---------------------------------------------------------------------------

// Clusters divide the work; each block has its own part of the cluster's features.
__device__ inline Segments wide_segments(const PanelArgs& args) {
  return Segments(args.work, static_cast<int>(blockIdx.x) / kWideCluster,
                  static_cast<int>(gridDim.x) / kWideCluster);
}
__device__ inline int wide_rank() { return static_cast<int>(blockIdx.x) % kWideCluster; }
__device__ inline int wide_first_tile(const PanelArgs& args, const Segment& segment) {
  return (segment.tile / args.work.token_blocks * kWideCluster + wide_rank()) * args.panel_tiles;
}
__device__ inline int wide_first_token(const PanelArgs& args, const Segment& segment) {
  return segment.tile % args.work.token_blocks * kWideTokens;
}

// In a gated product, the first half of a block's tiles is gate's and the second half up's, both
// from the same tile of their weight on.
__device__ inline bool is_up(const PanelArgs& args, int tile_of_block) {
  return tile_of_block >= args.panel_tiles;
}

// Goes through all pairs of the block's work.
struct WideCursor {
  const PanelArgs& args;
  PanelCursor at;
  int tile = -1;       // what the next one belongs to
  int first_tile = 0;  // of the weight

  __device__ explicit WideCursor(const PanelArgs& all) : args(all), at(wide_segments(all)) {
    update();
  }
  __device__ bool valid() const { return at.valid; }
  __device__ int pair() const { return at.segment.first; }
  __device__ void advance() {
    at.advance();
    update();
  }
  // Divides only when the tile has changed.
  __device__ void update() {
    if (tile == at.segment.tile) return;
    tile = at.segment.tile;
    first_tile = wide_first_tile(args, at.segment);
  }
};

// ---- copies -------------------------------------------------------------------------------------

// The decoding warps also start copies, each for certain data: starting a copy takes time.
struct WideDuties {
  bool x[2];    // of each slab of a pair
  bool codes;   // of the pairs to come
  bool scales;  // and zero points

  __device__ bool packed() const { return codes || scales; }
  // The duties of a lane.
  __device__ WideDuties(int warp, bool first_lane)
      : x{warp == 0 && first_lane, warp == 1 && first_lane},
        codes(warp == 2 && first_lane),
        scales(warp == 3 && first_lane) {}
};

template <typename Stage>
struct WideLoader {
  using Packed = typename Stage::Packed;
  const PanelArgs& args;
  char *slabs, *packed;
  WideBarriers<Stage> barriers;
  WideDuties duties;
  WideCursor packed_at;  // the next pair to request, and where it goes
  tile::Ring<Stage::kPackedPairs> packed_ring{};

  __device__ void load_codes() const {
    char* to = packed + packed_ring.place * Stage::kPackedBytes;
    std::uint64_t& barrier = barriers.packed[packed_ring.place];
    tile::arrive_expecting(barrier, kWideTiles * Packed::kCodeBytes);
    const std::int32_t at[2] = {packed_at.pair() * (Packed::kCodeBytes / 8), packed_at.first_tile};
    tile::load_box(to + Stage::kCodes, &args.boxes.codes, at, barrier);
    if (args.gated()) {
      tile::load_box(to + Stage::kCodes + args.panel_tiles * Packed::kCodeBytes,
                     &args.up_boxes.codes, at, barrier);
    }
  }
  __device__ void load_scales() const {
    char* to = packed + packed_ring.place * Stage::kPackedBytes;
    std::uint64_t& barrier = barriers.packed[packed_ring.place];
    const int block = packed_at.pair() >> args.boxes.scale_shift;
    tile::arrive_expecting(barrier, kWideTiles * (args.boxes.scale_bytes + args.boxes.zero_bytes));
    load_scales_of(args.boxes, block, to + Stage::kScales, to + Stage::kZerosAt, barrier);
    if (args.gated()) {
      load_scales_of(args.up_boxes, block, to + Stage::kScales + Stage::kUpScales,
                     to + Stage::kZerosAt + Stage::kUpZeros, barrier);
    }
  }
  __device__ void load_scales_of(const TileBoxes& boxes, int block, char* scales, char* zeros,
                                 std::uint64_t& barrier) const {
    tile::load_box(scales, &boxes.scales, {block * (boxes.scale_bytes / 8), packed_at.first_tile},
                   barrier);
    if (Packed::kMostZeroBytes > 0) {
      tile::load_box(zeros, &boxes.zeros, {block * (boxes.zero_bytes / 8), packed_at.first_tile},
                     barrier);
    }
  }
  // Each block of a cluster loads its share of the tokens into all of them.
  __device__ void load_x(int k, int token, int place) const {
    constexpr int kShare = kWideTokens / kWideCluster;
    char* to = slabs + place * Stage::kBytes + Stage::kX + wide_rank() * kShare * 128;
    std::uint64_t& barrier = barriers.full[place];
    tile::arrive_expecting(barrier, Stage::kXBytes);
    const std::int32_t at[4] = {k, token + wide_rank() * kShare, 0, 0};
    constexpr std::uint16_t kAllBlocks = (1 << kWideCluster) - 1;
    tile::load_box_for(kAllBlocks, to, &args.x_map, at, barrier);
  }

  // The first weights do not wait for earlier kernels.
  __device__ void start() {
    if (!duties.packed()) {
      if (duties.x[0] || duties.x[1]) wait_for_earlier_kernels();
      return;
    }
    for (int i = 0; i < Stage::kPackedPairs; ++i) next_packed();
  }
  // Requests a pair of packed slabs once there is room.
  __device__ void next_packed() {
    if (!packed_at.valid()) return;
    if (duties.codes || (duties.scales && Packed::kMostScaleBytes > 0)) {
      tile::wait(barriers.unpacked[packed_ring.place], packed_ring.parity ^ 1);
      if (duties.codes) {
        load_codes();
      } else {
        load_scales();
      }
    }
    packed_ring.advance();
    packed_at.advance();
  }
};

}  // namespace tessera::cuda
