// Quantizes activations to 8 bits, in blocks of 32 with one f32 scale each.
//
//   scale = max|x| / 127      q = round(x / scale), to nearest, ties to even
//
// So |x - scale * q| <= scale / 2 = max|x| / 254, and the error of a dot product over the block is
// at most max|x| / 254 * sum|w|. A block that holds a NaN or an infinity gets a scale of NaN, and
// every product with it becomes NaN.

// Per-target include guard: Highway includes this file once for each SIMD target.
#if defined(TESSERA_CPU_QUANTIZE_ACTIVATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_CPU_QUANTIZE_ACTIVATIONS_INL_H_
#undef TESSERA_CPU_QUANTIZE_ACTIVATIONS_INL_H_
#else
#define TESSERA_CPU_QUANTIZE_ACTIVATIONS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "cpu/linear/weight_tiles.h"
#include "cpu/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

struct ActivationBlock {
  std::int8_t q[kBlock];
  float scale;
  // -offset * sum(q) over the whole block and over its halves. A dot product with weights that are
  // shifted by `offset` starts from it.
  std::int32_t start;
  std::int32_t start_of_half[2];
};

// Below this, 127 / max|x| would overflow, so such a block counts as zeros.
constexpr float kSmallestActivation = 0x1p-100f;

// The sum of half a block: vectors of its integers, and where their bytes went.
template <class D8, class V32>
HWY_INLINE std::int32_t sum_of_half([[maybe_unused]] D8 d8, [[maybe_unused]] const std::int8_t* q,
                                    [[maybe_unused]] V32 sum) {
#if HWY_TARGET <= HWY_AVX3  // lower is better: one vector, whose bytes have an instruction
  const hn::FixedTag<std::uint8_t, 16> d;
  const auto bytes = hn::BitCast(d, hn::LoadU(d8, q));
  const auto sums = hn::SumsOf8(hn::Xor(bytes, hn::Set(d, 0x80)));  // adds 128 to each byte
  const auto both = hn::Add(sums, hn::Shuffle01(sums));
  return static_cast<std::int32_t>(hn::GetLane(both)) - 16 * 128;
#else
  const hn::CappedTag<std::int32_t, 16> d;
  return hn::GetLane(hn::SumOfLanes(d, sum));
#endif
}

// Quantizes one block; x has 32 values.
HWY_INLINE void quantize_block(const float* x, int offset, ActivationBlock& to) {
  const hn::CappedTag<float, 16> d;  // half a block is a whole number of vectors
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<std::int16_t, decltype(d)> di16;
  const hn::Rebind<std::int8_t, decltype(d)> di8;
  constexpr std::size_t lanes = hn::MaxLanes(d);

  // The bits of magnitudes compare like the numbers, and those of NaN are larger than all.
  auto largest = hn::Zero(di);
  for (std::size_t i = 0; i < kBlock; i += lanes) {
    largest = hn::Max(largest, hn::BitCast(di, hn::Abs(hn::LoadU(d, x + i))));
  }
  const float max = hn::GetLane(hn::BitCast(d, hn::MaxOfLanes(di, largest)));
  const bool finite = max <= std::numeric_limits<float>::max();  // NaN is not
  if (!finite || max < kSmallestActivation) {
    to = {};
    if (!finite) to.scale = std::numeric_limits<float>::quiet_NaN();
    return;
  }
  to.scale = max / 127.f;
  const auto inverse = hn::Set(d, 127.f / max);
  for (std::size_t half = 0; half < 2; ++half) {
    auto sum = hn::Zero(di);
    for (std::size_t i = 16 * half; i < 16 * half + 16; i += lanes) {
      const auto q = hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), inverse));
      sum = hn::Add(sum, q);
      hn::StoreU(hn::DemoteTo(di8, hn::DemoteTo(di16, q)), di8, to.q + i);
    }
    to.start_of_half[half] = -offset * sum_of_half(di8, to.q + 16 * half, sum);
  }
  to.start = to.start_of_half[0] + to.start_of_half[1];
}

// Quantizes a row of n values. Block b goes to to[b * stride]; the last one is padded with zeros.
template <typename T>
void quantize_row(const T* x, std::size_t n, int offset, ActivationBlock* to, std::size_t stride) {
  const hn::ScalableTag<float> d;
  float values[kBlock];
  std::size_t k = 0;
  if constexpr (std::is_same_v<T, float>) {
    for (; k + kBlock <= n; k += kBlock, to += stride) quantize_block(x + k, offset, *to);
  }
  for (; k < n; k += kBlock, to += stride) {
    const std::size_t count = std::min<std::size_t>(kBlock, n - k);
    convert_row_to_f32(d, x + k, values, count);
    std::fill(values + count, values + kBlock, 0.f);
    quantize_block(values, offset, *to);
  }
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
