#include "quant/int4.h"

#include "quant/block.h"
#include "quant/nibbles.h"

namespace tessera::quant {
namespace {

constexpr PairTable kPairs =
    make_pair_table({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, NibbleOrder::low_first);

struct Int4Scale {
  BFloat16 scale{};  // negative where that serves better
  std::uint8_t zero = kInt4Zero;
};

float nearest_code(float ratio, float zero) { return round_to_code(ratio, zero, 0.f, 15.f); }

// The best of from_max and of candidate(factor) for every factor around it.
template <typename Candidate>
Int4Scale search_around(std::span<const float> x, const Int4Scale& from_max, Candidate candidate) {
  Best<Int4Scale> best;
  const auto consider = [&](const Int4Scale& other) {
    const float scale = to_float(other.scale), zero = other.zero;
    const auto nearest = [zero](float ratio) { return nearest_code(ratio, zero) - zero; };
    best.offer(other, squared_error(x, scale, to_float(from_max.scale), nearest));
  };
  consider(from_max);
  for (int k = kAroundLargest.first; k <= kAroundLargest.last; ++k) {
    consider(candidate(kAroundLargest.factor(k)));
  }
  return best.candidate;
}

// Codes -8 .. 7 about 0.
Int4Scale find_scale(std::span<const float> x, ScaleSearch search) {
  const Range range = range_with_zero(x);
  const float extreme = range.high < -range.low ? range.low : range.high;
  if (extreme == 0.f) return {to_bf16(1.f)};
  const auto usable = [](float scale) { return Int4Scale{to_bf16(usable_scale(scale, 8.f))}; };
  const Int4Scale from_max = usable(magnitude_of(extreme) / 7.f);
  if (search == ScaleSearch::from_max) return from_max;
  // The weight furthest from 0 goes to -8, whatever its sign: a finer grid than with it on 7.
  const float extreme_on_minus_8 = extreme / -8.f;
  return search_around(x, from_max,
                       [&](float factor) { return usable(extreme_on_minus_8 * factor); });
}

// Codes 0 .. 15 from the smallest to the largest weight; 0 itself is always among the values.
Int4Scale find_scale_and_zero(std::span<const float> x, ScaleSearch search) {
  const Range range = range_with_zero(x);
  if (range.low == range.high) return {to_bf16(1.f)};
  const float step = usable_scale(range.high / 15.f - range.low / 15.f, 1.f);  // no overflow
  const float zero = round_to_code(-range.low / step, 0.f, 0.f, 15.f);
  const auto stretched = [=](float factor) {
    const float scale = usable_scale(step * factor, larger(zero, 15.f - zero));
    return Int4Scale{to_bf16(scale), static_cast<std::uint8_t>(zero)};
  };
  const Int4Scale from_max = stretched(1.f);
  if (search == ScaleSearch::from_max) return from_max;
  return search_around(x, from_max, stretched);
}

}  // namespace

void int4_encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search) {
  auto* codes = row_of<std::uint8_t>(weight.data, row);
  auto* scales = row_of<BFloat16>(weight.scales, row);
  auto* zeros = weight.zeros.defined() ? row_of<std::uint8_t>(weight.zeros, row) : nullptr;
  for_each_block(weight, 0, weight.in_features, [&](const Piece& piece) {
    const Int4Scale found =
        zeros ? find_scale_and_zero(piece.of(x), search) : find_scale(piece.of(x), search);
    scales[piece.block] = found.scale;
    if (zeros) zeros[piece.block] = found.zero;
    const float scale = to_float(found.scale), zero = found.zero;
    store_nibbles<NibbleOrder::low_first>(codes, piece.begin, piece.end, [=](std::int64_t k) {
      return static_cast<std::uint8_t>(nearest_code(x[k] / scale, zero));
    });
  });
}

void int4_decode_row(const Weight& weight, std::int64_t row, std::int64_t k_begin,
                     std::int64_t k_end, float* out) {
  const auto* codes = row_of<const std::uint8_t>(weight.data, row);
  const auto* scales = row_of<const BFloat16>(weight.scales, row);
  const auto* zeros =
      weight.zeros.defined() ? row_of<const std::uint8_t>(weight.zeros, row) : nullptr;
  for_each_block(weight, k_begin, k_end, [&](const Piece& piece) {
    const float zero = zeros ? zeros[piece.block] : kInt4Zero;
    decode_nibbles(kPairs, codes, piece.begin, piece.end, zero, to_float(scales[piece.block]),
                   out + (piece.begin - k_begin));
  });
}

}  // namespace tessera::quant
