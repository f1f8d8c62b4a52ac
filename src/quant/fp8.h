// FP8: E4M3 codes, an f32 scale for each row.
//
//   value = e4m3 * scale
#pragma once

#include <cstdint>

#include "quant/block.h"
#include "quant/e4m3.h"
#include "tessera/quant.h"

namespace tessera::quant {

// The codes of a float format are equally dense in every binade. So only the place within a binade
// matters, not which binade the weights fall into. One octave of scales upwards tries every place,
// and cuts nothing off.
constexpr Stretches fp8_octave() { return {17, 31, 16}; }

template <typename Values>
TESSERA_HOST_DEVICE float fp8_scale(const Values& x, ScaleSearch search) {
  const float from_max = usable_scale(largest_magnitude(x) / kE4M3Max, kE4M3Max);
  if (search == ScaleSearch::from_max) return from_max;
  return search_scale(x, from_max, kE4M3Max, fp8_octave(),
                      [](float ratio) { return e4m3_round(ratio); });
}

TESSERA_HOST_DEVICE inline void fp8_encode_block(const Weight& weight, std::int64_t row,
                                                 const Piece& piece, const float* x,
                                                 ScaleSearch search) {
  auto* codes = row_of<std::uint8_t>(weight.data, row);
  const float scale = fp8_scale(piece.of(x), search);
  row_of<float>(weight.scales, row)[piece.block] = scale;
  for (std::int64_t k = piece.begin; k < piece.end; ++k) codes[k] = e4m3_encode(x[k] / scale);
}

void fp8_encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search);
void fp8_decode_row(const Weight& weight, std::int64_t row, std::int64_t k_begin,
                    std::int64_t k_end, float* out);

}  // namespace tessera::quant
