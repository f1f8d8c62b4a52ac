// Philox (core/philox.h) for many counters at once, one in each lane.

// Per-target include guard: Highway includes this file once for each SIMD target.
#if defined(TESSERA_CPU_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_CPU_PHILOX_INL_H_
#undef TESSERA_CPU_PHILOX_INL_H_
#else
#define TESSERA_CPU_PHILOX_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "core/philox.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using U32 = hn::ScalableTag<std::uint32_t>;

#if HWY_TARGET != HWY_SCALAR
// The high halves of a * b: two widening multiplications, of the even and of the odd lanes.
HWY_INLINE hn::Vec<U32> multiply_high(hn::Vec<U32> a, hn::Vec<U32> b) {
  const U32 d;
  const hn::RepartitionToWide<U32> d64;
  const auto odd_lanes = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, a)));
  const auto even = hn::MulEven(a, b), odd = hn::MulEven(odd_lanes, b);
  return hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
}
#endif

// words [4 * lanes] = philox(key, counter), then those of the counters whose first word is one
// more, two more, ...
HWY_INLINE void store_philox_words(std::uint64_t key, const PhiloxWords& counter,
                                   std::uint32_t* words) {
#if HWY_TARGET == HWY_SCALAR
  const PhiloxWords four = philox(key, counter);
  std::copy(four.begin(), four.end(), words);
#else
  const U32 d;
  auto c0 = hn::Iota(d, counter[0]), c1 = hn::Set(d, counter[1]), c2 = hn::Set(d, counter[2]),
       c3 = hn::Set(d, counter[3]);
  auto k0 = hn::Set(d, static_cast<std::uint32_t>(key));
  auto k1 = hn::Set(d, static_cast<std::uint32_t>(key >> 32));
  const auto m0 = hn::Set(d, 0xD2511F53u), m1 = hn::Set(d, 0xCD9E8D57u);
  for (int round = 0; round < 10; ++round) {
    const auto high0 = multiply_high(c0, m0), high1 = multiply_high(c2, m1);
    const auto low0 = hn::Mul(c0, m0), low1 = hn::Mul(c2, m1);
    c0 = hn::Xor(high1, hn::Xor(c1, k0));
    c1 = low1;
    c2 = hn::Xor(high0, hn::Xor(c3, k1));
    c3 = low0;
    k0 = hn::Add(k0, hn::Set(d, 0x9E3779B9u));
    k1 = hn::Add(k1, hn::Set(d, 0xBB67AE85u));
  }
  hn::StoreInterleaved4(c0, c1, c2, c3, d, words);
#endif
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
