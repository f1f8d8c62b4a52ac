#include "quant/mxfp4.h"

#include "quant/block.h"
#include "quant/e2m1.h"
#include "quant/e8m0.h"
#include "quant/nibbles.h"

namespace tessera::quant {
namespace {

constexpr PairTable kMxfp4Pairs = make_pair_table(kE2M1Values, NibbleOrder::low_first);

}  // namespace

void mxfp4_encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search) {
  for_each_block(weight, 0, weight.in_features,
                 [&](const Piece& piece) { mxfp4_encode_block(weight, row, piece, x, search); });
}

void mxfp4_decode_row(const Weight& weight, std::int64_t row, std::int64_t k_begin,
                      std::int64_t k_end, float* out) {
  const auto* codes = row_of<const std::uint8_t>(weight.data, row);
  const auto* scales = row_of<const std::uint8_t>(weight.scales, row);
  for_each_block(weight, k_begin, k_end, [&](const Piece& piece) {
    decode_nibbles(kMxfp4Pairs, codes, piece.begin, piece.end, 0.f,
                   e8m0_decode(scales[piece.block]), out + (piece.begin - k_begin));
  });
}

}  // namespace tessera::quant
