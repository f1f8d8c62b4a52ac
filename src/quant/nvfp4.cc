#include "quant/nvfp4.h"

#include "quant/block.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/nibbles.h"

namespace tessera::quant {
namespace {

constexpr PairTable kPairs = make_pair_table(kE2M1Values, NibbleOrder::low_first);

constexpr auto kNearest = [](float ratio) { return e2m1_round(ratio); };

// The scale that puts the largest weight on 6 lies between two E4M3 codes, up to an eighth apart.
// Half-way both miss that weight by as much, but the smaller one is the finer grid for the others:
// it is taken a little beyond half-way as well. On normal weights 63/64 gives the least error.
constexpr float kTowardsFiner = 63.f / 64.f;

// Scales that the search tries, in codes from the one that puts the largest weight on 6 (8 codes
// double the scale). One below it cuts that weight off a little; four to six above it put the
// weight on 4, where E2M1 has no gap as wide as that between 4 and 6; the others lie between. A
// wider search finds nothing better on normal weights.
constexpr int kSteps[] = {0, 1, 2, 3, 4, 5, 6, -1};

std::uint8_t find_scale(std::span<const float> x, float tensor_scale, ScaleSearch search) {
  const float largest = largest_magnitude(x);
  if (largest == 0.f) return kE4M3One;
  // Code 0 is the scale 0: the smallest after it loses less.
  const auto usable = [](int code) {
    return static_cast<std::uint8_t>(std::clamp<int>(code, 1, kE4M3Largest));
  };
  const float on_largest_code = largest / (kE2M1Max * tensor_scale);
  const std::uint8_t from_max = usable(e4m3_encode(on_largest_code * kTowardsFiner));
  if (search == ScaleSearch::from_max) return from_max;
  Best<std::uint8_t> best;
  for (const int step : kSteps) {
    const std::uint8_t code = usable(from_max + step);
    const float scale = e4m3_decode(code) * tensor_scale;
    best.offer(code, squared_error(x, scale, tensor_scale, kNearest));
  }
  return best.candidate;
}

}  // namespace

float nvfp4_tensor_scale(float largest, ScaleSearch search) {
  if (largest == 0.f) return 1.f;
  // The block of the largest weight gets the scale 448, the largest there is, and all E4M3 codes
  // serve; the search wants to go above it, by up to six codes, and starts from 256.
  const float top_scale = search == ScaleSearch::from_max ? kE4M3Max : 256.f;
  // Not so small that scale * tensor_scale is subnormal, nor so large that 6 times it overflows.
  constexpr float kSmallest = FLT_MIN / 0x1p-9f, kLargest = FLT_MAX / (kE2M1Max * kE4M3Max);
  return clamped(largest / (kE2M1Max * top_scale), kSmallest, kLargest);
}

void nvfp4_encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search) {
  auto* codes = row_of<std::uint8_t>(weight.data, row);
  auto* scales = row_of<std::uint8_t>(weight.scales, row);
  for_each_block(weight, 0, weight.in_features, [&](const Piece& piece) {
    scales[piece.block] = find_scale(piece.of(x), weight.tensor_scale, search);
    const float scale = e4m3_decode(scales[piece.block]) * weight.tensor_scale;
    store_nibbles<NibbleOrder::low_first>(
        codes, piece.begin, piece.end, [=](std::int64_t k) { return e2m1_encode(x[k] / scale); });
  });
}

void nvfp4_decode_row(const Weight& weight, std::int64_t row, std::int64_t k_begin,
                      std::int64_t k_end, float* out) {
  const auto* codes = row_of<const std::uint8_t>(weight.data, row);
  const auto* scales = row_of<const std::uint8_t>(weight.scales, row);
  for_each_block(weight, k_begin, k_end, [&](const Piece& piece) {
    const float scale = kE4M3Values[scales[piece.block]] * weight.tensor_scale;
    decode_nibbles(kPairs, codes, piece.begin, piece.end, 0.f, scale,
                   out + (piece.begin - k_begin));
  });
}

}  // namespace tessera::quant
