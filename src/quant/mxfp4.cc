#include "quant/mxfp4.h"

#include "quant/block.h"
#include "quant/e2m1.h"
#include "quant/e8m0.h"
#include "quant/nibbles.h"

namespace tessera::quant {
namespace {

constexpr PairTable kPairs = make_pair_table(kE2M1Values, NibbleOrder::low_first);

constexpr auto kNearest = [](float ratio) { return e2m1_round(ratio); };

// 2^-126, the smallest normal f32, and 2^125, the largest of which 6 times is finite.
constexpr int kSmallest = 1, kLargest = 252;

std::uint8_t find_scale(std::span<const float> x, ScaleSearch search) {
  const float largest = largest_magnitude(x);
  if (largest == 0.f) return kE8M0One;
  const auto usable = [](int code) {
    return static_cast<std::uint8_t>(std::clamp(code, kSmallest, kLargest));
  };
  // The specification's rule: the exponent of the largest weight less that of 6, which is 2. The
  // weight then lies between 4 and 8, and saturates from 6 on. E8M0 has the bias of f32.
  const int exponent = static_cast<int>(std::bit_cast<std::uint32_t>(largest) >> 23);
  const std::uint8_t from_max = usable(exponent - 2);
  if (search == ScaleSearch::from_max) return from_max;
  // Twice that scale wins where much would saturate; half of it and four times it never do on
  // weights that look normal or heavy-tailed.
  const std::uint8_t twice = usable(exponent - 1);
  const float unit = e8m0_decode(from_max);
  Best<std::uint8_t> best;
  for (const std::uint8_t code : {from_max, twice}) {
    best.offer(code, squared_error(x, e8m0_decode(code), unit, kNearest));
  }
  return best.candidate;
}

}  // namespace

void mxfp4_encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search) {
  auto* codes = row_of<std::uint8_t>(weight.data, row);
  auto* scales = row_of<std::uint8_t>(weight.scales, row);
  for_each_block(weight, 0, weight.in_features, [&](const Piece& piece) {
    scales[piece.block] = find_scale(piece.of(x), search);
    const float scale = e8m0_decode(scales[piece.block]);
    store_nibbles<NibbleOrder::low_first>(
        codes, piece.begin, piece.end, [=](std::int64_t k) { return e2m1_encode(x[k] / scale); });
  });
}

void mxfp4_decode_row(const Weight& weight, std::int64_t row, std::int64_t k_begin,
                      std::int64_t k_end, float* out) {
  const auto* codes = row_of<const std::uint8_t>(weight.data, row);
  const auto* scales = row_of<const std::uint8_t>(weight.scales, row);
  for_each_block(weight, k_begin, k_end, [&](const Piece& piece) {
    decode_nibbles(kPairs, codes, piece.begin, piece.end, 0.f, e8m0_decode(scales[piece.block]),
                   out + (piece.begin - k_begin));
  });
}

}  // namespace tessera::quant
