#include "quant/int8.h"

#include "quant/block.h"

namespace tessera::quant {
namespace {

constexpr auto kNearest = [](float ratio) { return round_to_code(ratio, 0.f, -128.f, 127.f); };

float find_scale(std::span<const float> x, ScaleSearch search) {
  const float largest = largest_magnitude(x);
  if (largest == 0.f) return 1.f;
  const float from_max = usable_scale(largest / 127.f, 128.f);
  if (search == ScaleSearch::from_max) return from_max;
  return search_scale(x, from_max, 128.f, kAroundLargest, kNearest);
}

}  // namespace

void int8_encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search) {
  auto* codes = row_of<std::int8_t>(weight.data, row);
  auto* scales = row_of<float>(weight.scales, row);
  for_each_block(weight, 0, weight.in_features, [&](const Piece& piece) {
    const float scale = find_scale(piece.of(x), search);
    scales[piece.block] = scale;
    for (std::int64_t k = piece.begin; k < piece.end; ++k) {
      codes[k] = static_cast<std::int8_t>(kNearest(x[k] / scale));
    }
  });
}

void int8_decode_row(const Weight& weight, std::int64_t row, std::int64_t k_begin,
                     std::int64_t k_end, float* out) {
  const auto* codes = row_of<const std::int8_t>(weight.data, row);
  const auto* scales = row_of<const float>(weight.scales, row);
  for_each_block(weight, k_begin, k_end, [&](const Piece& piece) {
    const float scale = scales[piece.block];
    for (std::int64_t k = piece.begin; k < piece.end; ++k) {
      out[k - k_begin] = static_cast<float>(codes[k]) * scale;
    }
  });
}

}  // namespace tessera::quant
