// Rows of f32, f16 or bf16 as 8-bit codes with one scale (quant/kv8.h), in vectors of f32.

// Per-target include guard: Highway includes this file once for each SIMD target.
#if defined(TESSERA_CPU_ENCODE8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_CPU_ENCODE8_INL_H_
#undef TESSERA_CPU_ENCODE8_INL_H_
#else
#define TESSERA_CPU_ENCODE8_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cpu/simd/fp8-inl.h"
#include "cpu/simd/vector-inl.h"
#include "quant/kv8.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

// The nearest whole number, ties to even, for |x| <= 127.
template <class D>
HWY_INLINE void store_nearest(D, hn::Vec<D> x, std::int8_t* to) {
  const hn::Rebind<std::int8_t, D> d8;
  hn::StoreU(hn::DemoteTo(d8, hn::NearestInt(x)), d8, to);
}

// The nearest E4M3, ties to even, for numbers: e4m3_encode() without its branches.
template <class D>
HWY_INLINE void store_nearest(D d, hn::Vec<D> x, E4M3* to) {
  const hn::RebindToUnsigned<D> du32;
  const hn::RebindToSigned<D> di32;
  const hn::Rebind<std::uint8_t, D> d8;
  const auto small = hn::Min(hn::Abs(x), hn::Set(d, kE4M3Max));
  const auto bits = hn::BitCast(du32, small);
  const auto odd = hn::And(hn::ShiftRight<20>(bits), hn::Set(du32, 1));
  const auto rebased = hn::Sub(bits, hn::Set(du32, (127u - 7u) << 23));
  const auto normal = hn::ShiftRight<20>(hn::Add(rebased, hn::Add(odd, hn::Set(du32, 0x7ffff))));
  // Below 2^-6, in units of 2^-9: adding 2^14 makes the FPU round.
  const auto aligned = hn::BitCast(du32, hn::Add(small, hn::Set(d, 0x1p14f)));
  const auto subnormal = hn::And(aligned, hn::Set(du32, 0xf));
  const auto is_subnormal = hn::RebindMask(du32, hn::Lt(small, hn::Set(d, 0x1p-6f)));
  const auto sign = hn::And(hn::ShiftRight<24>(hn::BitCast(du32, x)), hn::Set(du32, 0x80));
  const auto code = hn::Or(hn::IfThenElse(is_subnormal, subnormal, normal), sign);
  hn::StoreU(hn::DemoteTo(d8, hn::BitCast(di32, code)), d8, &to->bits);
}

// The largest magnitude of a row, as bits.
template <typename From>
HWY_INLINE std::uint32_t largest_bits(const From* from, std::size_t n) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du32;
  const std::size_t lanes = hn::Lanes(d);
  auto largest = hn::Zero(du32);
  for (std::size_t i = 0; i < n; i += lanes) {
    const auto x = load_f32_up_to(d, from + i, std::min(lanes, n - i));
    largest = hn::Max(largest, hn::BitCast(du32, hn::Abs(x)));
  }
  return hn::GetLane(hn::MaxOfLanes(du32, largest));
}

// to [n] = from [n] / the scale, which is returned. A row that is not finite becomes zeros, with a
// scale of NaN.
template <typename From, typename Code>
float encode_row(const From* from, std::size_t n, Code* to) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  constexpr DType kDtype = std::is_same_v<Code, std::int8_t> ? DType::i8 : DType::f8e4m3;
  const float scale = quant::kv8_scale(largest_bits(from, n), quant::kv8_reach(kDtype));
  if (std::isnan(scale)) {
    std::fill(to, to + n, Code{});
    return scale;
  }
  const auto divisor = hn::Set(d, scale);
  for (std::size_t i = 0; i < n; i += lanes) {
    const std::size_t count = std::min(lanes, n - i);
    const auto ratio = hn::Div(load_f32_up_to(d, from + i, count), divisor);
    if (HWY_LIKELY(count == lanes)) {
      store_nearest(d, ratio, to + i);
    } else {
      Code codes[hn::MaxLanes(d)];
      store_nearest(d, ratio, codes);
      std::copy_n(codes, count, to + i);
    }
  }
  return scale;
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
