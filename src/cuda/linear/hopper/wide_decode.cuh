// The decoding warps of wide.cuh. They decode packed pairs of slabs into rows of weights, f16 or
// bf16, that the tensor cores read. A lane has 16 neighbours along K of two features
// (tile_layout.h): two 16-byte vectors of each. In a panel swizzled by 128 bytes, the eight lanes
// that store at the same time, in two rows, never hit the same bank.
//
// Each scheduler has one such warp, so it must avoid waiting: it reads the next pair before it
// decodes this one, and announces a slab after it has decoded the next one.
#pragma once

#include "cuda/linear/hopper/panel_load.cuh"
#include "cuda/linear/hopper/wide_load.cuh"
#include "cuda/linear/hopper/wide_stage.cuh"
#include "cuda/linear/layout/fragments.cuh"
#include "cuda/linear/layout/scaled_words.cuh"
#include "cuda/linear/layout/scales.cuh"
#include "cuda/linear/layout/staged_tile.cuh"
#include "cuda/tile/hopper/mbarrier.cuh"

namespace tessera::cuda {

template <Format F, ScaleMode S, bool Z, typename T>
struct WideDecoder {
  using Stage = WideStage<F, S, Z, T>;
  using Packed = typename Stage::Packed;
  static constexpr int kWords = TileFormat<F, T>::kWords;
  static constexpr int kTilesEach = kWideTiles / kWideDecodeWarps;

  // The packed words of the warp's tiles.
  struct PackedWords {
    RawScales raw[kTilesEach];
    std::uint32_t codes[2][kTilesEach][kWords];
  };

  const PanelArgs& args;
  char *slabs, *packed;
  WideBarriers<Stage> barriers;
  int lane, warp;
  tile::Ring<Stage::kPackedPairs> packed_ring{};

  __device__ int tile_of(int i) const { return i * kWideDecodeWarps + warp; }

  __device__ void load_codes(const char* from, int tile, int slab,
                             std::uint32_t (&words)[kWords]) const {
    load_staged_words(from + Stage::kCodes + tile * Packed::kCodeBytes, slab, lane, words);
  }

  __device__ void load_raw(const char* from, int tile, RawScales& raw) const {
    const bool up = is_up(args, tile);
    const int place = up ? tile - args.panel_tiles : tile;
    const char* scales = from + Stage::kScales + (up ? Stage::kUpScales : 0);
    const char* zeros = from + Stage::kZerosAt + (up ? Stage::kUpZeros : 0);
    load_staged_scales<F, S, Z>(scales + place * args.boxes.scale_bytes,
                                zeros + place * args.boxes.zero_bytes, args.boxes.block_shift, lane,
                                raw);
  }

  // Loads the next pair once it has arrived.
  __device__ void load_pair(PackedWords& words) {
    const char* from = packed + packed_ring.place * Stage::kPackedBytes;
    tile::wait(barriers.packed[packed_ring.place], packed_ring.parity);
#pragma unroll
    for (int i = 0; i < kTilesEach; ++i) {
      load_raw(from, tile_of(i), words.raw[i]);
      load_codes(from, tile_of(i), 0, words.codes[0][i]);
      load_codes(from, tile_of(i), 1, words.codes[1][i]);
    }
  }
  // Signals that the pair has been read.
  __device__ void give_back_pair() {
    __syncwarp();
    if (lane == 0) tile::arrive(barriers.unpacked[packed_ring.place]);
    packed_ring.advance();
  }

  // Stores 16 neighbours of each of two features: two 16-byte vectors, swizzled.
  __device__ void store(const Fragments& a, char* rows) const {
    const int g = lane / 4, vector = lane % 4 * 2;
#pragma unroll
    for (int side = 0; side < 2; ++side) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        *reinterpret_cast<uint4*>(rows + side * 1024 + swizzled(g, vector + half)) = {
            a[2 * half][side], a[2 * half][side + 2], a[2 * half + 1][side],
            a[2 * half + 1][side + 2]};
      }
    }
  }

  // Lets the tensor cores read what this lane has written. Each lane arrives by itself:
  // compute-sanitizer's racecheck does not see that one lane's arrival also covers what the others
  // wrote before they synced with it.
  __device__ void announce(int place) const {
    tile::publish_shared();
    tile::arrive(barriers.full[place]);
  }

  __device__ void start_rows(const Segment& segment, RowState (&rows)[kTilesEach]) const {
#pragma unroll
    for (int i = 0; i < kTilesEach; ++i) {
      const bool up = is_up(args, tile_of(i));
      const float* scales = up ? args.output.up_row_scales : args.output.row_scales;
      // Tiles beyond the matrix repeat the last tile.
      const int tile =
          min(wide_first_tile(args, segment) + tile_of(i) - (up ? args.panel_tiles : 0),
              args.tiles - 1);
      start_tile<F, S, Z, T>({}, scales + tile * kTileHeight, tile, lane, rows[i]);
    }
  }

  __device__ void decode(const PackedWords& words, int slab, RowState (&rows)[kTilesEach],
                         Fragments (&a)[kTilesEach]) const {
#pragma unroll
    for (int i = 0; i < kTilesEach; ++i) {
      decode_scaled<F, S, Z, T>(words.codes[slab][i], words.raw[i], slab, rows[i], a[i]);
    }
  }

  __device__ void run(const Halves* nf4_table) {
    WideLoader<Stage> loader{.args = args,
                             .slabs = slabs,
                             .packed = packed,
                             .barriers = barriers,
                             .duties = WideDuties(warp, lane == 0),
                             .packed_at = WideCursor(args)};
    loader.start();
    __syncwarp();
    RowState rows[kTilesEach];
#pragma unroll
    for (RowState& state : rows) state = no_rows<F, T>(nf4_table, lane);
    int left = 0;  // pairs
    Segments counted = wide_segments(args);
    for (Segment segment; counted.next(segment);) left += segment.end - segment.first;
    tile::Ring<Stage::kSlabs> ring;
    int unannounced = -1;
    PackedWords words;
    load_pair(words);
    give_back_pair();
    Segments segments = wide_segments(args);
    for (Segment segment; segments.next(segment);) {
      start_rows(segment, rows);
      const int token = wide_first_token(args, segment);
#pragma unroll 1
      for (int pair = segment.first; pair < segment.end; ++pair) {
        --left;
        PackedWords next;
#pragma unroll
        for (int slab = 0; slab < 2; ++slab, ring.advance()) {
          Fragments a[kTilesEach];
          decode(words, slab, rows, a);
          if (slab == 1 && left > 0) load_pair(next);
          tile::wait(barriers.empty[ring.place], ring.parity ^ 1);
          if (unannounced >= 0) announce(unannounced);
          if (loader.duties.x[slab]) {
            loader.load_x(pair * kPair + slab * kSlab, token, ring.place);
          }
          char* to = slabs + ring.place * Stage::kBytes + Stage::kW;
#pragma unroll
          for (int i = 0; i < kTilesEach; ++i) store(a[i], to + tile_of(i) * (kTileHeight * 128));
          unannounced = ring.place;
          if (slab == 0 && loader.duties.packed()) loader.next_packed();
        }
        if (left > 0) give_back_pair();
        words = next;
      }
    }
    if (unannounced >= 0) announce(unannounced);
  }
};

}  // namespace tessera::cuda
