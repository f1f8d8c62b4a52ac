// The layout of packed weights on a GPU (WeightLayout::cuda_tiles): each lane of a warp finds its
// operands of the tensor cores in 16 consecutive bytes, for all formats, and for mma.sync and wgmma
// alike.
//
// A weight W [N, K] is cut into tiles of 16 output features (rows of W), a tile into slabs of 64
// along K. In a slab, lane 4 g + t holds 16 neighbours of row g and the same 16 of row g + 8:
//
//                k  0 .. 15   16 .. 31   32 .. 47   48 .. 63
//   row 0          lane 0     lane 1     lane 2     lane 3
//   row 1          lane 4     lane 5     ...
//   ...
//   row 8          lane 0     lane 1     lane 2     lane 3
//
// So a scale block, whose size is a multiple of 16, never splits a lane's share. Four steps of the
// tensor cores, each 16 deep, consume a slab: lane t gives step j its elements 4 j .. 4 j + 3. This
// order along K differs from the tensor cores' own order; the activations use the same one.
//
//   data    [tiles, slabs][lane][16 bytes]             4-bit codes
//           [tiles, slabs][row >= 8][lane][16 bytes]   8-bit codes
//   scales  f32, or bytes of nvfp4 and mxfp4; and zero points:
//           [tiles, pairs of slabs][g][block of a slab][slab of the pair][row >= 8]   below 64
//           [tiles, blocks][g][row >= 8]                                              from 64 on
//   row_scales [tiles * 16] f32: what the sums of a row are multiplied with at the end (repack.cu)
//
// Features and depth are padded with zeros to whole tiles, pairs of slabs and blocks. So the place
// of the scales of pair number i of a weight, counted through all tiles, follows from i alone.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "tessera/weight.h"

namespace tessera::cuda {

inline constexpr int kTileHeight = 16;
inline constexpr int kSlab = 64;
inline constexpr int kPair = 2 * kSlab;  // the depth of two slabs, whose scales lie together

// Bytes of the codes of a tile's pair of slabs.
inline int pair_bytes(Format format) { return kTileHeight * kPair * info(format).bits / 8; }

// Pairs of slabs along K of a weight in tiles.
inline int pairs_of(const Weight& tiled) {
  return static_cast<int>(tiled.data.shape[1] / pair_bytes(tiled.format));
}

// ---- where an element lies ----------------------------------------------------------------------

// The place of a row within its tile, and of a depth k within its slab.
struct TilePlace {
  int lane;
  int side;  // 0: rows 0 to 7, 1: rows 8 to 15
  int element;

  TESSERA_HOST_DEVICE TilePlace(std::int64_t row, std::int64_t k)
      : lane(static_cast<int>(row % 8 * 4 + k % kSlab / 16)),
        side(static_cast<int>(row % kTileHeight / 8)),
        element(static_cast<int>(k % 16)) {}
};

// The byte of an 8-bit code; of a 4-bit code, the word of 8 (in units of 4 bytes).
TESSERA_HOST_DEVICE inline std::int64_t tile_byte(std::int64_t row, std::int64_t k,
                                                  std::int64_t slabs) {
  const TilePlace place(row, k);
  const std::int64_t slab = row / kTileHeight * slabs + k / kSlab;
  return ((slab * 2 + place.side) * 32 + place.lane) * 16 + place.element;
}
TESSERA_HOST_DEVICE inline std::int64_t tile_word(std::int64_t row, std::int64_t k,
                                                  std::int64_t slabs) {
  const TilePlace place(row, k);
  const std::int64_t slab = row / kTileHeight * slabs + k / kSlab;
  return (slab * 32 + place.lane) * 4 + place.side * 2 + place.element / 8;
}

// Of a tile with this many blocks to the row, of depth `group` each (0: there is but one).
TESSERA_HOST_DEVICE inline std::int64_t tile_scale(std::int64_t row, std::int64_t block,
                                                   std::int64_t blocks, std::int64_t group) {
  const std::int64_t tile = row / kTileHeight, g = row % 8, side = row % kTileHeight / 8;
  if (group == 0 || group >= kSlab) return ((tile * blocks + block) * 8 + g) * 2 + side;
  const std::int64_t of_slab = kSlab / group, slab = block / of_slab;
  const std::int64_t pair = (tile * blocks / of_slab + slab) / 2;
  return ((pair * 8 + g) * of_slab + block % of_slab) * 4 + slab % 2 * 2 + side;
}

// ---- eight codes in a word ----------------------------------------------------------------------

// Two neighbours, which the tensor cores take together, lie 16 bits apart; a word has four such
// twos. The bits of an E2M1 code are apart, so that one shift and a mask bring them to their places
// in f16 and bf16 (fragments.cuh):
//
//   bit of a half word   15 14 13 12 11 10  9  8  7  6  5  4  3  2  1  0
//                        s0 s1 s3 s2 [mag 0 ] [mag 1 ] [mag 2 ] [mag 3 ]
//
// int4 codes are adjacent, two 0 lowest. nf4 codes form bytes, the index into a table of twos: byte
// p is two p, its first code in the low four bits.
TESSERA_HOST_DEVICE inline int sign_bit(int two) {
  return two == 0 ? 15 : two == 1 ? 14 : two == 2 ? 12 : 13;
}

enum class WordOrder : std::uint8_t { e2m1, halves, bytes };

inline WordOrder word_order(Format format) {
  return format == Format::int4  ? WordOrder::halves
         : format == Format::nf4 ? WordOrder::bytes
                                 : WordOrder::e2m1;
}

// A code alone in its word, element 0 .. 7 of it.
TESSERA_HOST_DEVICE inline std::uint32_t place_code(WordOrder order, std::uint32_t code,
                                                    int element) {
  const int two = element / 2, second = element % 2;
  if (order == WordOrder::bytes) return code << (8 * two + 4 * second);
  if (order == WordOrder::halves) return code << (16 * second + 4 * two);
  const std::uint32_t sign = code >> 3, magnitude = code & 7u;
  return (sign << sign_bit(two) | magnitude << (9 - 3 * two)) << (16 * second);
}
TESSERA_HOST_DEVICE inline std::uint32_t code_at(WordOrder order, std::uint32_t word, int element) {
  const int two = element / 2, second = element % 2;
  if (order == WordOrder::bytes) return word >> (8 * two + 4 * second) & 15u;
  if (order == WordOrder::halves) return word >> (16 * second + 4 * two) & 15u;
  const std::uint32_t bits = word >> (16 * second);
  return (bits >> sign_bit(two) & 1u) << 3 | (bits >> (9 - 3 * two) & 7u);
}

}  // namespace tessera::cuda
