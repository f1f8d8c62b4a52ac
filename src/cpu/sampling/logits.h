// Passes over the logits of one token, in blocks. Knowing each block's maximum and weight, the
// sampler looks at a few blocks instead of the whole vocabulary.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace tessera::cpu {

// The size of a block: a few vectors of any width. There are few enough blocks (782 for a
// vocabulary of 50 thousand) that scanning them costs nothing.
inline constexpr std::size_t kLogitBlock = 64;

constexpr std::size_t logit_blocks(std::size_t logits) {
  return (logits + kLogitBlock - 1) / kLogitBlock;
}

// maxima[b]: the largest logit of block b, or NaN if the block holds one.
void block_maxima(std::span<const float> logits, std::span<float> maxima);

// The largest of the maxima, or NaN if one of them is.
inline float largest_of(std::span<const float> maxima) {
  float largest = -std::numeric_limits<float>::infinity();
  for (const float maximum : maxima) {
    if (std::isnan(maximum)) return maximum;
    largest = std::max(largest, maximum);
  }
  return largest;
}

// sums[b]: the sum of exp(scale * (logit - offset)) over block b. If offset is the largest logit,
// no term exceeds 1; -inf gives 0.
void block_sums(std::span<const float> logits, float offset, float scale, std::span<float> sums);

// weights[b]: the sum of sample_weight(logit, largest, scale) over block b (core/sample_weight.h).
void block_weights(std::span<const float> logits, float largest, float scale,
                   std::span<std::uint64_t> weights);

}  // namespace tessera::cpu
