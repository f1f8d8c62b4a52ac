// MXFP4 (OCP Microscaling Formats 1.0): E2M1 codes in blocks of 32, a power of two (E8M0) for each.
//
//   value = e2m1 * scale
#pragma once

#include <cstdint>

#include "quant/block.h"
#include "quant/e2m1.h"
#include "quant/e8m0.h"
#include "quant/nibbles.h"
#include "tessera/quant.h"

namespace tessera::quant {

// 2^-126, the smallest normal f32, and 2^125, the largest that stays finite times 6.
inline constexpr int kMxfp4Smallest = 1, kMxfp4Largest = 252;

template <typename Values>
TESSERA_HOST_DEVICE std::uint8_t mxfp4_scale(const Values& x, ScaleSearch search) {
  const float largest = largest_magnitude(x);
  const auto usable = [](int code) {
    return static_cast<std::uint8_t>(clamped(code, kMxfp4Smallest, kMxfp4Largest));
  };
  // The specification's rule: the exponent of the largest weight minus that of 6, which is 2. The
  // scaled weight then lies between 4 and 8, and saturates from 6 on. E8M0 has the bias of f32.
  const int exponent = static_cast<int>(std::bit_cast<std::uint32_t>(largest) >> 23);
  const std::uint8_t from_max = usable(exponent - 2);
  if (search == ScaleSearch::from_max) return from_max;
  // Twice that scale wins where much would saturate; half of it and four times it never do on
  // weights that look normal or heavy-tailed.
  const std::uint8_t twice = usable(exponent - 1);
  const float unit = e8m0_decode(from_max);
  const auto nearest = [](float ratio) { return e2m1_round(ratio); };
  Best<std::uint8_t> best;
  for (const std::uint8_t code : {from_max, twice}) {
    best.offer(code, squared_error(x, e8m0_decode(code), unit, nearest));
  }
  return best.candidate;
}

TESSERA_HOST_DEVICE inline void mxfp4_encode_block(const Weight& weight, std::int64_t row,
                                                   const Piece& piece, const float* x,
                                                   ScaleSearch search) {
  auto* codes = row_of<std::uint8_t>(weight.data, row);
  const std::uint8_t found = mxfp4_scale(piece.of(x), search);
  row_of<std::uint8_t>(weight.scales, row)[piece.block] = found;
  const float scale = e8m0_decode(found);
  store_nibbles<NibbleOrder::low_first>(codes, piece.begin, piece.end,
                                        [=](std::int64_t k) { return e2m1_encode(x[k] / scale); });
}

void mxfp4_encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search);
void mxfp4_decode_row(const Weight& weight, std::int64_t row, std::int64_t k_begin,
                      std::int64_t k_end, float* out);

}  // namespace tessera::quant
