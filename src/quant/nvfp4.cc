#include "quant/nvfp4.h"

#include "quant/block.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/nibbles.h"

namespace tessera::quant {
namespace {

constexpr PairTable kNvfp4Pairs = make_pair_table(kE2M1Values, NibbleOrder::low_first);

}  // namespace

float nvfp4_tensor_scale(float largest, ScaleSearch search) {
  // The largest weight goes to 6 and its block's scale to 448, the largest there is: all E4M3 codes
  // are in use. The search may want a scale six codes higher; starting from 256 leaves room for
  // that.
  const float top_scale = search == ScaleSearch::from_max ? kE4M3Max : 256.f;
  // Not so small that scale * tensor_scale is subnormal, nor so large that 6 times it overflows.
  constexpr float kSmallest = FLT_MIN / 0x1p-9f, kLargest = FLT_MAX / (kE2M1Max * kE4M3Max);
  return clamped(largest / (kE2M1Max * top_scale), kSmallest, kLargest);
}

void nvfp4_encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search) {
  for_each_block(weight, 0, weight.in_features,
                 [&](const Piece& piece) { nvfp4_encode_block(weight, row, piece, x, search); });
}

void nvfp4_decode_row(const Weight& weight, std::int64_t row, std::int64_t k_begin,
                      std::int64_t k_end, float* out) {
  const auto* codes = row_of<const std::uint8_t>(weight.data, row);
  const auto* scales = row_of<const std::uint8_t>(weight.scales, row);
  for_each_block(weight, k_begin, k_end, [&](const Piece& piece) {
    const float scale = kE4M3Values[scales[piece.block]] * weight.tensor_scale;
    decode_nibbles(kNvfp4Pairs, codes, piece.begin, piece.end, 0.f, scale,
                   out + (piece.begin - k_begin));
  });
}

}  // namespace tessera::quant
