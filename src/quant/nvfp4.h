// NVFP4: E2M1 codes in blocks of 16, an E4M3 scale for each block, one f32 scale for the tensor.
//
//   value = e2m1 * (scale * tensor_scale)
#pragma once

#include <cstdint>

#include "quant/block.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/nibbles.h"
#include "tessera/quant.h"

namespace tessera::quant {

// The scale that puts the largest weight on 6 lies between two E4M3 codes, up to an eighth apart.
// Half-way, both miss that weight equally, but the smaller one is the finer grid for the others:
// it is taken a little beyond half-way as well. On normal weights 63/64 gives the least error.
inline constexpr float kNvfp4TowardsFiner = 63.f / 64.f;

template <typename Values>
TESSERA_HOST_DEVICE std::uint8_t nvfp4_scale(const Values& x, float tensor_scale,
                                             ScaleSearch search) {
  const float largest = largest_magnitude(x);
  // Code 0 is the scale 0: the smallest one above it loses less.
  const auto usable = [](int code) {
    return static_cast<std::uint8_t>(clamped(code, 1, kE4M3Largest));
  };
  const float on_largest_code = largest / (kE2M1Max * tensor_scale);
  const std::uint8_t from_max = usable(e4m3_encode(on_largest_code * kNvfp4TowardsFiner));
  if (search == ScaleSearch::from_max) return from_max;
  const auto nearest = [](float ratio) { return e2m1_round(ratio); };
  // Scales that the search tries, in codes from the one that puts the largest weight on 6 (8 codes
  // double the scale). One below it cuts that weight off a little; four to six above it put the
  // weight on 4, where E2M1 has no gap as wide as that between 4 and 6; the others lie between. A
  // wider search finds nothing better on normal weights.
  Best<std::uint8_t> best;
  for (const int step : {0, 1, 2, 3, 4, 5, 6, -1}) {
    const std::uint8_t code = usable(from_max + step);
    const float scale = e4m3_decode(code) * tensor_scale;
    best.offer(code, squared_error(x, scale, tensor_scale, nearest));
  }
  return best.candidate;
}

TESSERA_HOST_DEVICE inline void nvfp4_encode_block(const Weight& weight, std::int64_t row,
                                                   const Piece& piece, const float* x,
                                                   ScaleSearch search) {
  auto* codes = row_of<std::uint8_t>(weight.data, row);
  const std::uint8_t found = nvfp4_scale(piece.of(x), weight.tensor_scale, search);
  row_of<std::uint8_t>(weight.scales, row)[piece.block] = found;
  const float scale = e4m3_decode(found) * weight.tensor_scale;
  store_nibbles<NibbleOrder::low_first>(codes, piece.begin, piece.end,
                                        [=](std::int64_t k) { return e2m1_encode(x[k] / scale); });
}

// From the largest magnitude of the whole tensor.
float nvfp4_tensor_scale(float largest, ScaleSearch search);
void nvfp4_encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search);
void nvfp4_decode_row(const Weight& weight, std::int64_t row, std::int64_t k_begin,
                      std::int64_t k_end, float* out);

}  // namespace tessera::quant
