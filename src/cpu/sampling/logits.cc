// Block maxima, sums of exponentials, weights. All run on one thread: reading a vocabulary takes
// microseconds, less than waking another thread.
#include "cpu/sampling/logits.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "core/sample_weight.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/sampling/logits.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After highway.h.
#include <hwy/contrib/math/math-inl.h>

#include "cpu/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

// A vector is at most a block wide, so that whole vectors fill a block.
using F32 = hn::CappedTag<float, kLogitBlock>;
using F64 = hn::CappedTag<double, kLogitBlock>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float block_maximum(const float* x) {
  const F32 d;
  auto largest = hn::LoadU(d, x);
  auto nan = hn::IsNaN(largest);  // kept apart, because Max may drop a NaN
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

// sample_weight() for one logit in each lane, with the same roundings: f32 exponents of 2 first,
// then whole numbers.
hn::Vec<F32> light_powers(hn::Vec<F32> x, hn::Vec<F32> largest, hn::Vec<F32> scale) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const auto exponent = hn::Mul(hn::Sub(x, largest), scale);
  const auto weighs = hn::Gt(exponent, hn::Set(d, kLightest));
  const auto used = hn::IfThenElseZero(weighs, exponent);  // the steps below need this range
  const auto whole = hn::Floor(used), part = hn::Sub(used, whole);
  auto power = hn::Set(d, kExp2Factor6);
  for (const float factor :
       {kExp2Factor5, kExp2Factor4, kExp2Factor3, kExp2Factor2, kExp2Factor1, 1.f}) {
    power = hn::Add(hn::Mul(power, part), hn::Set(d, factor));
  }
  const auto shift = hn::ShiftLeft<23>(hn::ConvertTo(di, whole));
  const auto scaled = hn::BitCast(d, hn::Add(hn::BitCast(di, power), shift));
  return hn::IfThenElseZero(weighs, scaled);
}

std::uint64_t block_weight(const float* x, float largest, float scale) {
  const F32 d;
  const std::size_t lanes = hn::Lanes(d);
  float powers[kLogitBlock];
  for (std::size_t i = 0; i < kLogitBlock; i += lanes) {
    hn::StoreU(light_powers(hn::LoadU(d, x + i), hn::Set(d, largest), hn::Set(d, scale)), d,
               powers + i);
  }
  // As weight_units() does, the bits of 512 are subtracted at the end, once for each logit.
  const F64 d64;
  const hn::RebindToUnsigned<F64> du;
  const hn::Rebind<float, F64> d_half;
  auto sums = hn::Zero(du);
  for (std::size_t i = 0; i < kLogitBlock; i += hn::Lanes(d64)) {
    const auto wide = hn::PromoteTo(d64, hn::LoadU(d_half, powers + i));
    sums = hn::Add(sums, hn::BitCast(du, hn::Add(wide, hn::Set(d64, kUnitBase))));
  }
  HWY_ALIGN std::uint64_t of_lane[hn::MaxLanes(du)];
  hn::Store(sums, du, of_lane);
  const std::uint64_t sum = std::accumulate(of_lane, of_lane + hn::Lanes(du), std::uint64_t{0});
  return sum - kLogitBlock * std::bit_cast<std::uint64_t>(kUnitBase);
}

// Calls fn(block) for each block of logits. The last block is filled up with -inf, which changes
// neither a maximum nor a sum.
template <typename Out, typename F>
void for_each_block(std::span<const float> logits, std::span<Out> out, F&& fn) {
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

void block_weights(std::span<const float> logits, float largest, float scale,
                   std::span<std::uint64_t> weights) {
  for_each_block(logits, weights,
                 [&](const float* x) HWY_ATTR { return block_weight(x, largest, scale); });
}

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(block_maxima);
HWY_EXPORT(block_sums);
HWY_EXPORT(block_weights);

void block_maxima(std::span<const float> logits, std::span<float> maxima) {
  HWY_DYNAMIC_DISPATCH(block_maxima)(logits, maxima);
}

void block_sums(std::span<const float> logits, float offset, float scale, std::span<float> sums) {
  HWY_DYNAMIC_DISPATCH(block_sums)(logits, offset, scale, sums);
}

void block_weights(std::span<const float> logits, float largest, float scale,
                   std::span<std::uint64_t> weights) {
  HWY_DYNAMIC_DISPATCH(block_weights)(logits, largest, scale, weights);
}

}  // namespace tessera::cpu
#endif
