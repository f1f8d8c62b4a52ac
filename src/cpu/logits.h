// Passes over the logits of one token, in blocks: what is known of a block (its maximum, its sum of
// exponentials) lets the sampler look at a few blocks instead of the whole vocabulary.
#pragma once

#include <cstddef>
#include <span>

namespace tessera::cpu {

// Logits of a block: a few vectors of any width, and few enough blocks (782 of a vocabulary of 50
// thousand) that scanning them costs nothing.
inline constexpr std::size_t kLogitBlock = 64;

constexpr std::size_t logit_blocks(std::size_t logits) {
  return (logits + kLogitBlock - 1) / kLogitBlock;
}

// maxima[b]: the largest logit of block b; NaN where the block holds one.
void block_maxima(std::span<const float> logits, std::span<float> maxima);

// sums[b]: the sum of exp(scale * (logit - offset)) over block b. With offset the largest logit no
// term exceeds 1; -inf gives 0.
void block_sums(std::span<const float> logits, float offset, float scale, std::span<float> sums);

}  // namespace tessera::cpu
