// WeightLayout::cpu_tiles: the layout of packed weights that the CPU's kernels read.
//
// Sixteen rows of W (output features) are interleaved into a tile, so that a 512-bit vector holds
// one 32-bit number of each row and a product needs no sum across lanes. Narrower vectors take a
// tile in two or four slices of rows. Along K, kernels decode blocks of 32 weights, the same blocks
// that activations are quantized in. A block is a run of 64-byte steps:
//
//   4-bit codes: 4 steps of 8 weights             8-bit codes: 8 steps of 4 weights
//
//   byte      0     1     2     3     4   ..  63    byte   0    1    2    3    4   ..  63
//           +-----+-----+-----+-----+-----+-+-----+      +----+----+----+----+----+-+----+
//   row     |  0     0     0     0  |  1  ..|  15 |      | 0    0    0    0  | 1  ..| 15 |
//   low  4  |  k    k+1   k+2   k+3 |  k  ..| k+3 |      | k   k+1  k+2  k+3 | k  ..|k+3 |
//   high 4  | k+4   k+5   k+6   k+7 | k+4 ..| k+7 |      +----+----+----+----+----+-+----+
//           +-----+-----+-----+-----+-----+-+-----+
//
// So `byte & 15` and `byte >> 4` are each the operand of one 8-bit dot product.
//
//   data    u8 or i8   [tiles, blocks * 256 or 512]
//   scales  as the format stores them  [tiles, scales of a row * 16]: sixteen rows side by side
//   zeros   u8 or i8   [tiles, scales of a row * 16]
//
// N is padded to whole tiles and K to whole blocks. Codes and scales of the padding are zero bytes.
// They decode to a finite number, which is multiplied by an activation of zero, or belongs to a row
// that nobody reads.
#pragma once

#include <cstdint>

#include "tessera/context.h"
#include "tessera/weight.h"

namespace tessera::cpu {

inline constexpr std::int64_t kWeightTileN = 16;  // rows of W in a tile
inline constexpr std::int64_t kBlock = 32;        // weights of a block, along K
inline constexpr std::int64_t kStepBytes = 64;

// Whether the format's groups of equal scale nest with blocks of 32. True for nvfp4, mxfp4 and nf4,
// and for int4 and int8 by rows or in groups of a multiple of 32. Dense and fp8 weights are read as
// they are.
bool has_tiles(Format format, std::int64_t group);

// Sizes of the tensors of a tiled weight.
struct TileSizes {
  std::int64_t tiles;   // of sixteen rows
  std::int64_t blocks;  // of 32 weights, in a row
  std::int64_t bytes;   // of codes, in a tile
  std::int64_t scales;  // of a row
};
TileSizes tile_sizes(Format format, std::int64_t group, std::int64_t out_features,
                     std::int64_t in_features);

// Copies a published weight into `tiled`, whose tensors have the sizes above.
void write_tiles(Context& ctx, const Weight& published, const Weight& tiled);
// Copies one row back: `published` has that row alone, bit for bit as it was.
void read_tile_row(const Weight& tiled, std::int64_t row, const Weight& published);

// One tile, as the kernels read it.
struct Tile {
  const std::uint8_t* codes;
  const std::uint8_t* scales;
  DType scale_dtype;
  const std::uint8_t* zeros;      // null: none
  std::int64_t blocks;            // of 32 weights
  std::int64_t blocks_per_scale;  // nvfp4: 1, with two scales in a block
};
Tile tile_of(const Weight& weight, std::int64_t tile);

}  // namespace tessera::cpu
