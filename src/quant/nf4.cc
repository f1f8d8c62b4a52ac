#include "quant/nf4.h"

#include "quant/block.h"
#include "quant/nibbles.h"

namespace tessera::quant {
namespace {

constexpr PairTable kPairs = make_pair_table(kNf4Values, NibbleOrder::high_first);

constexpr auto kNearest = [](float ratio) { return nf4_round(ratio); };

float find_scale(std::span<const float> x, ScaleSearch search) {
  const float largest = largest_magnitude(x);
  if (largest == 0.f) return 1.f;
  const float from_max = usable_scale(largest, 1.f);
  if (search == ScaleSearch::from_max) return from_max;
  return search_scale(x, from_max, 1.f, kAroundLargest, kNearest);
}

}  // namespace

void nf4_encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search) {
  auto* codes = row_of<std::uint8_t>(weight.data, row);
  auto* scales = row_of<float>(weight.scales, row);
  for_each_block(weight, 0, weight.in_features, [&](const Piece& piece) {
    scales[piece.block] = find_scale(piece.of(x), search);
    const float scale = scales[piece.block];
    store_nibbles<NibbleOrder::high_first>(
        codes, piece.begin, piece.end, [=](std::int64_t k) { return nf4_encode(x[k] / scale); });
  });
}

void nf4_decode_row(const Weight& weight, std::int64_t row, std::int64_t k_begin,
                    std::int64_t k_end, float* out) {
  const auto* codes = row_of<const std::uint8_t>(weight.data, row);
  const auto* scales = row_of<const float>(weight.scales, row);
  for_each_block(weight, k_begin, k_end, [&](const Piece& piece) {
    decode_nibbles(kPairs, codes, piece.begin, piece.end, 0.f, scales[piece.block],
                   out + (piece.begin - k_begin));
  });
}

}  // namespace tessera::quant
