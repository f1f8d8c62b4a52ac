#include "quant/fp8.h"

#include "quant/block.h"

namespace tessera::quant {
namespace {

// Codes of a float lie equally close in every binade: which binade the weights fall into does not
// matter, but where in it they do. One octave of scales upwards shows every place, and cuts nothing
// off.
constexpr Stretches kOctave = {17, 31, 16};

constexpr auto kNearest = [](float ratio) { return e4m3_round(ratio); };

float find_scale(std::span<const float> x, ScaleSearch search) {
  const float largest = largest_magnitude(x);
  if (largest == 0.f) return 1.f;
  const float from_max = usable_scale(largest / kE4M3Max, kE4M3Max);
  if (search == ScaleSearch::from_max) return from_max;
  return search_scale(x, from_max, kE4M3Max, kOctave, kNearest);
}

}  // namespace

void fp8_encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search) {
  auto* codes = row_of<std::uint8_t>(weight.data, row);
  const float scale = find_scale({x, static_cast<std::size_t>(weight.in_features)}, search);
  *row_of<float>(weight.scales, row) = scale;
  for (std::int64_t k = 0; k < weight.in_features; ++k) codes[k] = e4m3_encode(x[k] / scale);
}

void fp8_decode_row(const Weight& weight, std::int64_t row, std::int64_t k_begin,
                    std::int64_t k_end, float* out) {
  const auto* codes = row_of<const std::uint8_t>(weight.data, row);
  const float scale = *row_of<const float>(weight.scales, row);
  for (std::int64_t k = k_begin; k < k_end; ++k) {
    out[k - k_begin] = kE4M3Values[codes[k]] * scale;
  }
}

}  // namespace tessera::quant
