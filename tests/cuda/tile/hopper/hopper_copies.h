// Kernels that only copy, by the pieces of the tile layer: boxes there and back, boxes for
// several blocks of a cluster, pieces of memory through a ring of buffers.
#pragma once

#include <cstdint>

#include "cuda/tile/hopper/tensor_map.h"
#include "tessera/context.h"

namespace tessera::test {

inline constexpr int kBox = 64;  // rows, and columns
inline constexpr int kMostBlocks = 4;

// Where a box begins: column, row, head, batch.
struct BoxPlace {
  std::int32_t at[4];
};

// What element (row, column) of a box becomes on its way.
constexpr int marked(int value, int row, int column) { return value + row % 16 * 64 + column; }

// The box at `from` of `in` to `to` of `out`, both f16 maps with boxes of 64 rows, marked.
void move_box(Context& ctx, const CUtensorMap& in, BoxPlace from, const CUtensorMap& out,
              BoxPlace to);

// Block r of a cluster brings rows 64 r .. of `in` to the blocks in masks[r]. Then out
// [blocks, blocks, 64, 64] has what each block got from each, or -1.
struct Masks {
  std::uint16_t of[kMostBlocks];
};
void share_boxes(Context& ctx, const CUtensorMap& in, Masks masks, int blocks, std::uint16_t* out);

// A box of [rows, bytes] from row and byte (of 8 each) on: to out, row after row.
void load_bytes(Context& ctx, const CUtensorMap& in, int row, int unit, int box_bytes,
                unsigned char* out);

// `count` words, in pieces of `piece` (a multiple of 4, at most kMostPiece), each plus one.
inline constexpr int kMostPiece = 1024;
void add_one(Context& ctx, const std::int32_t* in, std::int32_t* out, int count, int piece);

}  // namespace tessera::test
