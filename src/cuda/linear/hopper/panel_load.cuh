// The loading warps of a block of panels.cuh. For each pair of slabs, one thread starts the copies
// of codes, scales and activations. Three warps then put the activations into the order of
// tile_layout.h:
//
//   of a slab, element   16 t + 4 j + 2 h + e   (t, j: 0 to 3; h, e: 0 or 1)
//   goes to              16 j + 8 h + 2 t + e
//
// of its token. Lane 4 r + t takes the 16 elements t of token r, which are eight words. Word 2 j +
// h becomes word t of 16 bytes in the new place. stmatrix does this with the words of four lanes.
#pragma once

#include "cuda/linear/hopper/panel_stage.cuh"
#include "cuda/tile/grid_dependency.cuh"
#include "cuda/tile/hopper/mbarrier.cuh"
#include "cuda/tile/hopper/tma.cuh"
#include "cuda/tile/transpose.cuh"

namespace tessera::cuda {

// Besides the warp that starts copies.
inline constexpr int kPanelOrderWarps = 3;
// Pairs whose weights are requested at the start.
inline constexpr int kPanelsAhead = 2;
// The number of arrivals for a pair: one by the thread that starts the copies of weights, and one
// by each ordering warp, or by each of its lanes if they write activations one by one
// (copy_pairs()).
__device__ inline std::uint32_t panel_arrivals(bool boxed) {
  return 1 + kPanelOrderWarps * (boxed ? 1 : 32);
}

// Goes through all pairs of the block's work.
struct PanelCursor {
  Segments segments;
  Segment segment;
  bool valid;

  __device__ explicit PanelCursor(const Segments& all) : segments(all) {
    valid = segments.next(segment);
  }
  __device__ void advance() {
    if (++segment.first == segment.end) valid = segments.next(segment);
  }
};

// The first tile of the weight in this block's panel.
__device__ inline int first_tile(const PanelArgs& args, const Segment& segment) {
  return segment.tile / args.work.token_blocks * args.panel_tiles;
}

// Loads the tiles of one weight, whose codes begin at place `first` of the block's tiles.
template <typename Stage>
__device__ inline void load_tiles(const TileBoxes& boxes, int pair, int tile, int first,
                                  char* stage, std::uint64_t& barrier) {
  const int block = pair >> boxes.scale_shift;
  tile::load_box(stage + Stage::kCodes + first * Stage::kCodeBytes, &boxes.codes,
                 {pair * (Stage::kCodeBytes / 8), tile}, barrier);
  if (Stage::kMostScaleBytes > 0) {
    tile::load_box(stage + Stage::kScales + (first > 0 ? Stage::kUpScales : 0), &boxes.scales,
                   {block * (boxes.scale_bytes / 8), tile}, barrier);
  }
  if (Stage::kMostZeroBytes > 0) {
    tile::load_box(stage + Stage::kZerosAt + (first > 0 ? Stage::kUpZeros : 0), &boxes.zeros,
                   {block * (boxes.zero_bytes / 8), tile}, barrier);
  }
}

template <typename Stage>
__device__ inline void load_weights(const PanelArgs& args, const PanelCursor& at, char* stage,
                                    std::uint64_t& barrier) {
  const int pair = at.segment.first, tile = first_tile(args, at.segment);
  tile::arrive_expecting(barrier,
                         Stage::block_tiles(args) *
                             (Stage::kCodeBytes + args.boxes.scale_bytes + args.boxes.zero_bytes));
  load_tiles<Stage>(args.boxes, pair, tile, 0, stage, barrier);
  if (Stage::kGated) {
    load_tiles<Stage>(args.up_boxes, pair, tile, args.panel_tiles, stage, barrier);
  }
}

// Loads x in memory order, swizzled, with zeros beyond the matrix.
template <typename Stage>
__device__ inline void load_x(const PanelArgs& args, const PanelCursor& at, char* stage,
                              std::uint64_t& barrier) {
  const int token = at.segment.tile % args.work.token_blocks * Stage::kTokens;
  tile::arrive_expecting(barrier, Stage::kXBytes);
#pragma unroll
  for (int slab = 0; slab < 2; ++slab) {
    tile::load_box(stage + Stage::kX + slab * (Stage::kXBytes / 2), &args.x_map,
                   {at.segment.first * kPair + slab * kSlab, token, 0, 0}, barrier);
  }
}

// Run by one thread.
template <typename Stage>
__device__ void ask_for_pairs(const PanelArgs& args, char* stages, const PanelBarriers& barriers) {
  if (args.x.boxed) tile::prefetch_map(&args.x_map);
  // The first weights do not wait for earlier kernels. Only a few, because x queues behind
  // everything requested before it.
  static_assert(Stage::kStages >= kPanelsAhead);
  PanelCursor weights_at{Segments(args.work)};
  int ahead = 0;
  for (; ahead < kPanelsAhead && weights_at.valid; ++ahead, weights_at.advance()) {
    load_weights<Stage>(args, weights_at, stages + ahead * Stage::kBytes, barriers.full[ahead]);
  }
  wait_for_earlier_kernels();
  tile::Ring<Stage::kStages> ring;
  for (PanelCursor at{Segments(args.work)}; at.valid; at.advance(), ring.advance(), --ahead) {
    char* stage = stages + ring.place * Stage::kBytes;
    if (ahead <= 0) {
      // Not for a place that has its weights already: if other warps load x, the place may have
      // been used by now, and its barrier may be a phase ahead.
      tile::wait(barriers.empty[ring.place], ring.parity ^ 1);
      load_weights<Stage>(args, at, stage, barriers.full[ring.place]);
    }
    if (args.x.boxed) load_x<Stage>(args, at, stage, barriers.raw[ring.place]);
  }
}

// ---- the order of activations -------------------------------------------------------------------

// The offset of 16-byte vector p of row r, in eight swizzled rows.
__device__ inline int swizzled(int r, int p) { return r * 128 + (p ^ r) * 16; }

// Reorders eight tokens of a slab in place.
__device__ inline void order_tokens(char* tokens) {
  const int lane = threadIdx.x % 32;
  std::uint32_t words[2][4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint4 vector =
        *reinterpret_cast<const uint4*>(tokens + swizzled(lane / 4, lane % 4 * 2 + half));
    words[half][0] = vector.x, words[half][1] = vector.y;
    words[half][2] = vector.z, words[half][3] = vector.w;
  }
  __syncwarp();  // all lanes have read what others overwrite
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    tile::store_8x8(tokens + swizzled(lane % 8, half * 4 + lane / 8), words[half]);
  }
}

// Copies a token of both slabs from memory that the copy engine cannot read: two elements to a
// lane.
__device__ inline void copy_token(const PanelX& x, std::int64_t token, int first_k,
                                  char* eight_tokens, int slab_bytes) {
  const int lane = threadIdx.x % 32;
  char* to = eight_tokens + swizzled(static_cast<int>(token % 8), lane % 8) + lane / 8 * 4;
  const auto* from = x.matrix.row<const std::uint16_t>(token);
  for (int k = first_k + 2 * lane; k < first_k + kPair; k += kSlab, to += slab_bytes) {
    const std::uint32_t low = k < x.k ? from[k] : 0;
    const std::uint32_t high = k + 1 < x.k ? from[k + 1] : 0;
    *reinterpret_cast<std::uint32_t*>(to) = high << 16 | low;
  }
}

// Each of kPanelOrderWarps warps calls order_pairs() or copy_pairs(); `warp` is its number. Tokens
// beyond the matrix are zero or left unchanged: their sums are never stored.
template <typename Stage>
__device__ void order_pairs(const PanelArgs& args, char* stages, const PanelBarriers& barriers,
                            int warp) {
  int pairs = 0;
  Segments segments(args.work);
  for (Segment segment; segments.next(segment);) pairs += segment.end - segment.first;
  const int tokens = static_cast<int>(min(args.x.m, std::int64_t{Stage::kTokens}));
  tile::Ring<Stage::kStages> ring;
  for (; pairs > 0; --pairs, ring.advance()) {
    char* x = stages + ring.place * Stage::kBytes + Stage::kX;
    tile::wait(barriers.raw[ring.place], ring.parity);
#pragma unroll 1
    for (int token = 8 * warp; token < tokens; token += 8 * kPanelOrderWarps) {
      order_tokens(x + token * 128);
      order_tokens(x + token * 128 + Stage::kXBytes / 2);
    }
    tile::publish_shared();
    __syncwarp();
    if (threadIdx.x % 32 == 0) tile::arrive(barriers.full[ring.place]);
  }
}

template <typename Stage>
__device__ void copy_pairs(const PanelArgs& args, char* stages, const PanelBarriers& barriers,
                           int warp) {
  wait_for_earlier_kernels();
  tile::Ring<Stage::kStages> ring;
  for (PanelCursor at{Segments(args.work)}; at.valid; at.advance(), ring.advance()) {
    const int first = at.segment.tile % args.work.token_blocks * Stage::kTokens;
    const int tokens = static_cast<int>(min(args.x.m - first, std::int64_t{Stage::kTokens}));
    char* x = stages + ring.place * Stage::kBytes + Stage::kX;
    tile::wait(barriers.empty[ring.place], ring.parity ^ 1);
#pragma unroll 1
    for (int token = warp; token < tokens; token += kPanelOrderWarps) {
      copy_token(args.x, first + token, at.segment.first * kPair, x + token / 8 * 1024,
                 Stage::kXBytes / 2);
    }
    // Each lane arrives by itself: compute-sanitizer's racecheck does not see that one lane's
    // arrival also covers what the others wrote before they synced with it.
    tile::publish_shared();
    tile::arrive(barriers.full[ring.place]);
  }
}

}  // namespace tessera::cuda
