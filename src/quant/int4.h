// INT4 (compressed-tensors' "pack-quantized"): codes 0..15 in blocks of a multiple of 16 or of a
// row, a scale for each (bf16 if quantize() made it, else also f16 or f32) and, on request,
// a zero point: the code that means 0 (8 without one).
//
//   value = (code - zero) * scale
#pragma once

#include <cstdint>

#include "core/half.h"
#include "quant/block.h"
#include "quant/nibbles.h"
#include "tessera/quant.h"

namespace tessera::quant {

inline constexpr std::uint8_t kInt4Zero = 8;  // of a weight without zero points

struct Int4Scale {
  BFloat16 scale{};  // negative if that fits better
  std::uint8_t zero = kInt4Zero;
};

TESSERA_HOST_DEVICE inline float int4_nearest(float ratio, float zero) {
  return round_to_code(ratio, zero, 0.f, 15.f);
}

// The best of from_max and of candidate(factor) for every factor around it.
template <typename Values, typename Candidate>
TESSERA_HOST_DEVICE Int4Scale int4_search_around(const Values& x, const Int4Scale& from_max,
                                                 Candidate candidate) {
  Best<Int4Scale> best;
  const auto consider = [&](const Int4Scale& other) {
    const float scale = to_float(other.scale), zero = other.zero;
    const auto nearest = [zero](float ratio) { return int4_nearest(ratio, zero) - zero; };
    best.offer(other, squared_error(x, scale, to_float(from_max.scale), nearest));
  };
  consider(from_max);
  const Stretches stretches = around_largest();
  for (int k = stretches.first; k <= stretches.last; ++k) {
    consider(candidate(stretches.factor(k)));
  }
  return best.candidate;
}

// Codes -8 .. 7 about 0.
template <typename Values>
TESSERA_HOST_DEVICE Int4Scale int4_scale(const Values& x, ScaleSearch search) {
  const Range range = range_with_zero(x);
  const float extreme = range.high < -range.low ? range.low : range.high;
  const auto usable = [](float scale) { return Int4Scale{to_bf16(usable_scale(scale, 8.f))}; };
  const Int4Scale from_max = usable(magnitude_of(extreme) / 7.f);
  if (search == ScaleSearch::from_max) return from_max;
  // The weight furthest from 0 goes to -8, whatever its sign: the grid is finer than with it on 7.
  const float extreme_on_minus_8 = extreme / -8.f;
  return int4_search_around(x, from_max,
                            [&](float factor) { return usable(extreme_on_minus_8 * factor); });
}

// Codes 0 .. 15 from the smallest to the largest weight; 0 itself is always among the values.
template <typename Values>
TESSERA_HOST_DEVICE Int4Scale int4_scale_and_zero(const Values& x, ScaleSearch search) {
  const Range range = range_with_zero(x);
  const float step = usable_scale(range.high / 15.f - range.low / 15.f, 1.f);  // no overflow
  const float zero = round_to_code(-range.low / step, 0.f, 0.f, 15.f);
  const auto stretched = [=](float factor) {
    const float scale = usable_scale(step * factor, larger(zero, 15.f - zero));
    return Int4Scale{to_bf16(scale), static_cast<std::uint8_t>(zero)};
  };
  const Int4Scale from_max = stretched(1.f);
  if (search == ScaleSearch::from_max) return from_max;
  return int4_search_around(x, from_max, stretched);
}

TESSERA_HOST_DEVICE inline void int4_encode_block(const Weight& weight, std::int64_t row,
                                                  const Piece& piece, const float* x,
                                                  ScaleSearch search) {
  auto* codes = row_of<std::uint8_t>(weight.data, row);
  const bool zero_point = weight.zeros.data != nullptr;
  const Int4Scale found =
      zero_point ? int4_scale_and_zero(piece.of(x), search) : int4_scale(piece.of(x), search);
  row_of<BFloat16>(weight.scales, row)[piece.block] = found.scale;
  if (zero_point) row_of<std::uint8_t>(weight.zeros, row)[piece.block] = found.zero;
  const float scale = to_float(found.scale), zero = found.zero;
  store_nibbles<NibbleOrder::low_first>(codes, piece.begin, piece.end, [=](std::int64_t k) {
    return static_cast<std::uint8_t>(int4_nearest(x[k] / scale, zero));
  });
}

void int4_encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search);
void int4_decode_row(const Weight& weight, std::int64_t row, std::int64_t k_begin,
                     std::int64_t k_end, float* out);

}  // namespace tessera::quant
