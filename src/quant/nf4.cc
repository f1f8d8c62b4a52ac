#include "quant/nf4.h"

#include "quant/block.h"
#include "quant/nibbles.h"

namespace tessera::quant {
namespace {

constexpr PairTable kNf4Pairs = make_pair_table(kNf4Values, NibbleOrder::high_first);

}  // namespace

void nf4_encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search) {
  for_each_block(weight, 0, weight.in_features,
                 [&](const Piece& piece) { nf4_encode_block(weight, row, piece, x, search); });
}

void nf4_decode_row(const Weight& weight, std::int64_t row, std::int64_t k_begin,
                    std::int64_t k_end, float* out) {
  const auto* codes = row_of<const std::uint8_t>(weight.data, row);
  const auto* scales = row_of<const float>(weight.scales, row);
  for_each_block(weight, k_begin, k_end, [&](const Piece& piece) {
    decode_nibbles(kNf4Pairs, codes, piece.begin, piece.end, 0.f, scales[piece.block],
                   out + (piece.begin - k_begin));
  });
}

}  // namespace tessera::quant
