// INT8: two's complement codes, a scale for each row or group (f32 if quantize() made it, else
// also bf16 or f16) and, in some checkpoints, a zero point: the code that means 0.
//
//   value = (code - zero) * scale
#pragma once

#include <cstdint>

#include "quant/block.h"
#include "tessera/quant.h"

namespace tessera::quant {

TESSERA_HOST_DEVICE inline float int8_nearest(float ratio) {
  return round_to_code(ratio, 0.f, -128.f, 127.f);
}

template <typename Values>
TESSERA_HOST_DEVICE float int8_scale(const Values& x, ScaleSearch search) {
  const float from_max = usable_scale(largest_magnitude(x) / 127.f, 128.f);
  if (search == ScaleSearch::from_max) return from_max;
  return search_scale(x, from_max, 128.f, around_largest(),
                      [](float ratio) { return int8_nearest(ratio); });
}

TESSERA_HOST_DEVICE inline void int8_encode_block(const Weight& weight, std::int64_t row,
                                                  const Piece& piece, const float* x,
                                                  ScaleSearch search) {
  auto* codes = row_of<std::int8_t>(weight.data, row);
  const float scale = int8_scale(piece.of(x), search);
  row_of<float>(weight.scales, row)[piece.block] = scale;
  for (std::int64_t k = piece.begin; k < piece.end; ++k) {
    codes[k] = static_cast<std::int8_t>(int8_nearest(x[k] / scale));
  }
}

void int8_encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search);
void int8_decode_row(const Weight& weight, std::int64_t row, std::int64_t k_begin,
                     std::int64_t k_end, float* out);

}  // namespace tessera::quant
