// Sums that do not wait for each other: an instruction may start before the previous one is done,
// so that only the number of instructions per cycle counts.
//
//   sums   s0  s1  s2  ...  s11        each step adds to all of them
#include "cpu/simd/peak_rate.h"

#include <cstddef>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/simd/peak_rate.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After highway.h.
#include "cpu/simd/dot8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

// Two units with a latency of four cycles need eight sums; there are sixteen registers or more.
constexpr int kFmaSums = 12;

// With constant indices, so that all sums stay in registers.
template <class V, std::size_t... i>
HWY_INLINE void add_to_all(V (&sums)[kFmaSums], V factor, V addend, std::index_sequence<i...>) {
  ((sums[i] = hn::MulAdd(sums[i], factor, addend)), ...);
}

PeakWork run_fma(std::int64_t rounds) {
  constexpr int kUnrolled = 16;
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const V factor = hn::Set(d, 0.999f), addend = hn::Set(d, 1e-3f);
  V sums[kFmaSums];
  for (int i = 0; i < kFmaSums; ++i) sums[i] = hn::Set(d, static_cast<float>(i));
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (int step = 0; step < kUnrolled; ++step) {
      add_to_all(sums, factor, addend, std::make_index_sequence<kFmaSums>());
    }
  }
  V total = sums[0];
  for (int i = 1; i < kFmaSums; ++i) total = hn::Add(total, sums[i]);
  const double per_round = 2.0 * kUnrolled * kFmaSums * static_cast<double>(hn::Lanes(d));
  return {.flops = per_round * static_cast<double>(rounds),
          .result = hn::GetLane(hn::SumOfLanes(d, total))};
}

// All sums use the same weights: those stay in registers too, as in a tile that serves many tokens.
constexpr int kDotSums = 12, kDotSteps = 4;

template <class D, class V, std::size_t... i>
HWY_INLINE void dot_all(D d, const V* weights, const std::int8_t* x, V (&sums)[1][kDotSums],
                        std::index_sequence<i...>) {
  const V* const of[kDotSums] = {(static_cast<void>(i), weights)...};
  const std::int8_t* const row[] = {x};
  dot8<Dot8Range::narrow, kDotSteps>(d, of, row, sums);
}

PeakWork run_dot8(std::int64_t rounds) {
  const hn::ScalableTag<std::int32_t> d;
  using V = hn::Vec<decltype(d)>;
  V weights[kDotSteps], sums[1][kDotSums];
  for (V& weight : weights) weight = hn::Set(d, 0x01010101);
  for (int i = 0; i < kDotSums; ++i) sums[0][i] = hn::Set(d, i);
  alignas(64) std::int8_t x[4 * kDotSteps];
  for (int i = 0; i < 4 * kDotSteps; ++i) x[i] = static_cast<std::int8_t>(i % 3 - 1);
  for (std::int64_t round = 0; round < rounds; ++round) {
    dot_all(d, weights, x, sums, std::make_index_sequence<kDotSums>());
  }
  V total = sums[0][0];
  for (int i = 1; i < kDotSums; ++i) total = hn::Add(total, sums[0][i]);
  const double per_round = 2.0 * 4 * kDotSteps * kDotSums * static_cast<double>(hn::Lanes(d));
  return {.flops = per_round * static_cast<double>(rounds),
          .result = static_cast<double>(hn::GetLane(total))};
}

std::uint64_t run_sum(const std::uint64_t* from, std::int64_t count) {
  constexpr int kSums = 8;
  const hn::ScalableTag<std::uint64_t> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V sums[kSums];
  for (V& sum : sums) sum = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + kSums * lanes <= count; i += kSums * lanes) {
    for (int s = 0; s < kSums; ++s) {
      sums[s] = hn::Add(sums[s], hn::LoadU(d, from + i + s * lanes));
    }
  }
  V total = sums[0];
  for (int s = 1; s < kSums; ++s) total = hn::Add(total, sums[s]);
  std::uint64_t result = hn::GetLane(hn::SumOfLanes(d, total));
  for (; i < count; ++i) result += from[i];
  return result;
}

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(run_fma);
HWY_EXPORT(run_dot8);
HWY_EXPORT(run_sum);

PeakWork peak_fma(std::int64_t rounds) { return HWY_DYNAMIC_DISPATCH(run_fma)(rounds); }
PeakWork peak_dot8(std::int64_t rounds) { return HWY_DYNAMIC_DISPATCH(run_dot8)(rounds); }
std::uint64_t sum_memory(const std::uint64_t* from, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(run_sum)(from, count);
}

}  // namespace tessera::cpu
#endif
