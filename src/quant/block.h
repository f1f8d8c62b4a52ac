// A block: consecutive weights of a row that share a scale. What the codecs need to visit the
// blocks of a row, to measure one, and to choose its scale.
//
// Every sum and every choice here has a fixed order, whatever the compiler does, and kernels call
// the same code: an encoder on another device gives the same bits. (Kernels cannot read constants
// in the host's memory: lists of them are functions here, or are inside a function.)
#pragma once

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cstdint>
#include <limits>
#include <span>

#include "core/half.h"
#include "core/host_device.h"
#include "quant/rounding.h"
#include "tessera/weight.h"

namespace tessera::quant {

template <typename T>
TESSERA_HOST_DEVICE T* row_of(const Tensor& tensor, std::int64_t row) {
  return static_cast<T*>(tensor.data) + row * tensor.strides[0];
}

// An element of a matrix of f32, f16 or bf16.
TESSERA_HOST_DEVICE inline float float_at(const Tensor& tensor, std::int64_t row,
                                          std::int64_t column) {
  if (tensor.dtype == DType::f32) return row_of<const float>(tensor, row)[column];
  if (tensor.dtype == DType::f16) return to_float(row_of<const Half>(tensor, row)[column]);
  return to_float(row_of<const BFloat16>(tensor, row)[column]);
}

// Weights [begin, end) of a row; they lie in the block of this index.
struct Piece {
  std::int64_t block, begin, end;

  TESSERA_HOST_DEVICE std::span<const float> of(const float* row) const {
    return {row + begin, row + end};
  }
};

// Calls fn(Piece) for each piece of [k_begin, k_end) that lies in one block.
template <typename F>
void for_each_block(const Weight& weight, std::int64_t k_begin, std::int64_t k_end, F&& fn) {
  const std::int64_t group = weight.group == 0 ? weight.in_features : weight.group;
  for (std::int64_t k = k_begin; k < k_end;) {
    const std::int64_t block = k / group, end = std::min(k_end, (block + 1) * group);
    fn(Piece{block, k, end});
    k = end;
  }
}

// A block's values are a std::span<const float> on the CPU. A kernel may have its own type for them
// (cuda/quant/encode.cu), with a fold() that gives the same bits: all that follows takes either.
//
// A sum or an extreme over term(x) of a block. Element i goes to lane i % 16, in rising order, and
// the lanes start at 0; at the end they are folded, 8 onto 8, 4 onto 4, 2 onto 2, 1 onto 1. Sixteen
// is one 512-bit vector, and nvfp4's block.
inline constexpr std::size_t kLanes = 16;

template <typename Term, typename Combine>
TESSERA_HOST_DEVICE float fold(std::span<const float> x, Term term, Combine combine) {
  float lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    for (std::size_t l = 0; l < kLanes; ++l) lanes[l] = combine(lanes[l], term(x[i + l]));
  }
  for (std::size_t l = 0; i + l < x.size(); ++l) lanes[l] = combine(lanes[l], term(x[i + l]));
  for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::size_t l = 0; l < width; ++l) lanes[l] = combine(lanes[l], lanes[l + width]);
  }
  return lanes[0];
}

struct Range {
  float low, high;
};

constexpr float smaller(float a, float b) { return b < a ? b : a; }
constexpr float larger(float a, float b) { return b > a ? b : a; }

// The smallest and the largest of the block's values and 0: the range that its codes must cover.
template <typename Values>
TESSERA_HOST_DEVICE Range range_with_zero(const Values& x) {
  const auto itself = [](float value) { return value; };
  return {fold(x, itself, [](float a, float b) { return smaller(a, b); }),
          fold(x, itself, [](float a, float b) { return larger(a, b); })};
}

template <typename Values>
TESSERA_HOST_DEVICE float largest_magnitude(const Values& x) {
  return fold(
      x, [](float value) { return magnitude_of(value); },
      [](float a, float b) { return larger(a, b); });
}

// The squared error of the block on a grid of this scale, in units of `unit` squared: the sum of
// (r - nearest(r))^2 over r = x / scale, times (scale / unit)^2. If unit is near the scale, no part
// of it can overflow or vanish, whatever the size of the weights.
template <typename Values, typename Nearest>
TESSERA_HOST_DEVICE float squared_error(const Values& x, float scale, float unit, Nearest nearest) {
  const float sum = fold(
      x,
      [=](float value) {
        const float ratio = value / scale;
        const float error = ratio - nearest(ratio);
        return error * error;
      },
      [](float a, float b) { return a + b; });
  const float stretch = scale / unit;
  return sum * (stretch * stretch);
}

// The candidate with the least error so far; among equals, the one that was offered first.
template <typename Candidate>
struct Best {
  Candidate candidate{};
  float error = std::numeric_limits<float>::infinity();

  TESSERA_HOST_DEVICE void offer(const Candidate& other, float other_error) {
    if (other_error < error) {
      candidate = other;
      error = other_error;
    }
  }
};

// Keeps a scale (of either sign) normal, and `reach` times it finite: ratios to it and decoded
// values are then finite, even in a block of zeros. The margin of 2^-8 is for rounding to bf16
// afterwards.
TESSERA_HOST_DEVICE inline float usable_scale(float scale, float reach) {
  constexpr float kMargin = 1.f - 0x1p-8f;
  return with_sign_of(clamped(magnitude_of(scale), FLT_MIN, FLT_MAX / reach * kMargin), scale);
}

// Factors to try on a scale that can take any value: first / unit, (first + 1) / unit, ..
// last / unit.
struct Stretches {
  int first, last, unit;

  constexpr float factor(int k) const { return static_cast<float>(k) / static_cast<float>(unit); }
};

// Around the scale that puts the largest magnitude on the largest code. Smaller scales cut the
// largest weights off and represent all others better; larger ones help if weights happen to fall
// between codes. On normal and on heavy-tailed (Student t) weights, a wider or a finer list changes
// the error by less than half a percent.
constexpr Stretches around_largest() { return {24, 36, 32}; }

// The best of `from_max` and its stretches.
template <typename Values, typename Nearest>
TESSERA_HOST_DEVICE float search_scale(const Values& x, float from_max, float reach,
                                       const Stretches& stretches, Nearest nearest) {
  Best<float> best;
  best.offer(from_max, squared_error(x, from_max, from_max, nearest));
  for (int k = stretches.first; k <= stretches.last; ++k) {
    const float scale = usable_scale(from_max * stretches.factor(k), reach);
    best.offer(scale, squared_error(x, scale, from_max, nearest));
  }
  return best.candidate;
}

}  // namespace tessera::quant
