// Scores of a few query rows, with keys read in place: dot products along the head dim, in whole
// vectors of f32, f16 or bf16.

// Per-target include guard: Highway includes this file once for each SIMD target.
#if defined(TESSERA_CPU_ATTENTION_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_CPU_ATTENTION_DOT_INL_H_
#undef TESSERA_CPU_ATTENTION_DOT_INL_H_
#else
#define TESSERA_CPU_ATTENTION_DOT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "cpu/attention/attention.h"
#include "cpu/attention/tile-inl.h"
#include "cpu/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
// Adds up the 128-bit blocks of a vector.
template <class D>
HWY_INLINE auto sum_of_blocks(D, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return sum_of_blocks(half, hn::Add(hn::UpperHalf(half, v), hn::LowerHalf(half, v)));
  }
}
#endif

// to [4] = the sums of the lanes of a, b, c and e. This does a transpose and the additions in one.
HWY_INLINE void store_sums(Vec a, Vec b, Vec c, Vec e, float* to) {
#if HWY_TARGET == HWY_SCALAR
  const Vec lanes[] = {a, b, c, e};
  for (int t = 0; t < 4; ++t) to[t] = hn::GetLane(lanes[t]);
#else
  const F32 d;
  const hn::FixedTag<float, 4> d4;
  const hn::RepartitionToWide<F32> d64;
  const auto ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const auto ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const auto ab64 = hn::BitCast(d64, ab), ce64 = hn::BitCast(d64, ce);
  const auto abce = hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, ab64, ce64)),
                            hn::BitCast(d, hn::InterleaveUpper(d64, ab64, ce64)));
  hn::Store(sum_of_blocks(d, abce), d4, to);
#endif
}

// Four keys for score_block(): operator()(t, i) is the vector of elements of key t from i on. This
// version reads keys as they are stored.
template <typename T>
struct StoredKeys {
  const T* rows[4];

  HWY_INLINE Vec operator()(int t, std::int64_t i) const { return load_f32(F32(), rows[t] + i); }
};

// This version rotates keys in registers. It needs pairs (i, i + pairs) that fill whole vectors, or
// that fill exactly one vector together.
template <typename T>
struct RotatedKeys {
  StoredKeys<T> stored;
  const float* cos[4];  // [2, pairs] of each key's position: sin follows cos
  std::int64_t pairs;

  static bool fits(const KeyRotation& rope) {
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(F32()));
    return rope.style == RopeStyle::half_split &&
           (rope.pairs % lanes == 0 || 2 * rope.pairs == lanes);
  }
  HWY_INLINE Vec operator()(int t, std::int64_t i) const {
    const F32 d;
    if (i >= 2 * pairs) return stored(t, i);
    if (pairs < static_cast<std::int64_t>(hn::Lanes(d))) {
      return rotated_vector(cos[t], cos[t] + pairs, stored.rows[t]);
    }
    const bool second = i >= pairs;
    const std::int64_t pair = second ? i - pairs : i;
    const auto a = stored(t, pair), b = stored(t, pairs + pair);
    const auto c = hn::LoadU(d, cos[t] + pair), s = hn::LoadU(d, cos[t] + pairs + pair);
    return second ? hn::MulAdd(a, s, hn::Mul(b, c)) : hn::NegMulAdd(b, s, hn::Mul(a, c));
  }
};

// Rows that share the loads of four keys: 16 sums in AVX-512's 32 registers, 8 in 16.
inline constexpr int kDotRows = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

// scores [kRows, 4] = q [kRows, width] keys [4, width]^T
template <int kRows, class Keys>
HWY_INLINE void score_block(const float* q, std::int64_t width, const Keys& keys, float* scores) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vec sum[kRows][4];
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < 4; ++t) sum[r][t] = hn::Zero(d);
  }
  const auto add = [&](std::int64_t i) HWY_ATTR {
    Vec key[4];
    for (int t = 0; t < 4; ++t) key[t] = keys(t, i);
    for (int r = 0; r < kRows; ++r) {
      const auto q_vector = hn::Load(d, q + r * width + i);
      for (int t = 0; t < 4; ++t) sum[r][t] = hn::MulAdd(q_vector, key[t], sum[r][t]);
    }
  };
  std::int64_t i = 0;
  for (; i + 4 * lanes <= width; i += 4 * lanes) {  // most dims are whole fours: no loop within
    add(i), add(i + lanes), add(i + 2 * lanes), add(i + 3 * lanes);
  }
  for (; i < width; i += lanes) add(i);
  for (int r = 0; r < kRows; ++r) {
    store_sums(sum[r][0], sum[r][1], sum[r][2], sum[r][3], scores + r * kKeyTile);
  }
}

// Does the same for any number of rows.
template <class Keys>
HWY_INLINE void score_four_keys(const float* q, std::int64_t rows, std::int64_t width,
                                const Keys& keys, float* scores) {
  std::int64_t r = 0;
  for (; r + kDotRows <= rows; r += kDotRows) {
    score_block<kDotRows>(q + r * width, width, keys, scores + r * kKeyTile);
  }
  for (; r < rows; ++r) score_block<1>(q + r * width, width, keys, scores + r * kKeyTile);
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
