#include "quant/int4.h"

#include "quant/block.h"
#include "quant/nibbles.h"

namespace tessera::quant {
namespace {

constexpr PairTable kInt4Pairs =
    make_pair_table({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, NibbleOrder::low_first);

}  // namespace

void int4_encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search) {
  for_each_block(weight, 0, weight.in_features,
                 [&](const Piece& piece) { int4_encode_block(weight, row, piece, x, search); });
}

void int4_decode_row(const Weight& weight, std::int64_t row, std::int64_t k_begin,
                     std::int64_t k_end, float* out) {
  const auto* codes = row_of<const std::uint8_t>(weight.data, row);
  const auto* zeros =
      weight.zeros.defined() ? row_of<const std::uint8_t>(weight.zeros, row) : nullptr;
  for_each_block(weight, k_begin, k_end, [&](const Piece& piece) {
    const float zero = zeros ? zeros[piece.block] : kInt4Zero;
    decode_nibbles(kInt4Pairs, codes, piece.begin, piece.end, zero,
                   float_at(weight.scales, row, piece.block), out + (piece.begin - k_begin));
  });
}

}  // namespace tessera::quant
