// Block maxima and block sums of exponentials. One thread: a vocabulary is read in microseconds,
// less than it takes to wake another thread.
#include "cpu/logits.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/logits.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After highway.h.
#include <hwy/contrib/math/math-inl.h>

#include "cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

// At most a block wide, so that whole vectors fill it.
using F32 = hn::CappedTag<float, kLogitBlock>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float block_maximum(const float* x) {
  const F32 d;
  auto largest = hn::LoadU(d, x);
  auto nan = hn::IsNaN(largest);  // apart, because Max may drop a NaN
  for (std::size_t i = hn::Lanes(d); i < kLogitBlock; i += hn::Lanes(d)) {
    const auto v = hn::LoadU(d, x + i);
    largest = hn::Max(largest, v);
    nan = hn::Or(nan, hn::IsNaN(v));
  }
  return hn::AllFalse(d, nan) ? hn::GetLane(hn::MaxOfLanes(d, largest)) : kNan;
}

float block_sum(const float* x, float offset, float scale) {
  const F32 d;
  const auto offsets = hn::Set(d, offset), scales = hn::Set(d, scale);
  auto sum = hn::Zero(d);
  for (std::size_t i = 0; i < kLogitBlock; i += hn::Lanes(d)) {
    const auto shifted = hn::Mul(scales, hn::Sub(hn::LoadU(d, x + i), offsets));
    sum = hn::Add(sum, hn::Exp(d, shifted));
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// fn(block) for each block of logits; the last one is filled up with -inf, which changes neither a
// maximum nor a sum.
template <typename F>
void for_each_block(std::span<const float> logits, std::span<float> out, F&& fn) {
  const std::size_t whole = logits.size() / kLogitBlock;
  for (std::size_t b = 0; b < whole; ++b) out[b] = fn(logits.data() + b * kLogitBlock);
  const auto rest = logits.subspan(whole * kLogitBlock);
  if (rest.empty()) return;
  float filled[kLogitBlock];
  std::fill(std::copy(rest.begin(), rest.end(), filled), filled + kLogitBlock, -kInfinity);
  out[whole] = fn(filled);
}

void block_maxima(std::span<const float> logits, std::span<float> maxima) {
  for_each_block(logits, maxima, [](const float* x) HWY_ATTR { return block_maximum(x); });
}

void block_sums(std::span<const float> logits, float offset, float scale, std::span<float> sums) {
  for_each_block(logits, sums,
                 [&](const float* x) HWY_ATTR { return block_sum(x, offset, scale); });
}

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(block_maxima);
HWY_EXPORT(block_sums);

void block_maxima(std::span<const float> logits, std::span<float> maxima) {
  HWY_DYNAMIC_DISPATCH(block_maxima)(logits, maxima);
}

void block_sums(std::span<const float> logits, float offset, float scale, std::span<float> sums) {
  HWY_DYNAMIC_DISPATCH(block_sums)(logits, offset, scale, sums);
}

}  // namespace tessera::cpu
#endif
