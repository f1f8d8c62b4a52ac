// Turns scores into weights, one strip of query rows x keys at a time: softcap, mask, running
// softmax, dropout. A strip is [rows, kKeyTile] f32 scratch. Its first `n` columns are keys.
//
// The running ("online") softmax keeps, for each row, the largest exponent m and the sum l of
// 2^(s - m) over the keys so far. When a tile raises m, earlier sums and outputs are too large by a
// factor of 2^(m_new - m) and are scaled down. Most tiles do not raise m.

// Per-target include guard: Highway includes this file once for each SIMD target.
#if defined(TESSERA_CPU_ATTENTION_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_CPU_ATTENTION_SOFTMAX_INL_H_
#undef TESSERA_CPU_ATTENTION_SOFTMAX_INL_H_
#else
#define TESSERA_CPU_ATTENTION_SOFTMAX_INL_H_
#endif

#include <hwy/highway.h>
// Must come after highway.h.
#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/philox.h"
#include "cpu/attention/attention.h"
#include "cpu/attention/mask.h"
#include "cpu/attention/tile-inl.h"
#include "cpu/simd/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// ---- scores ------------------------------------------------------------------------------------

// s = score_factor * tanh(s)
inline void cap_scores(float score_factor, std::int64_t rows, std::int64_t n, float* s) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, score_factor);
  for (std::int64_t r = 0; r < rows; ++r, s += kKeyTile) {
    for (std::int64_t j = 0; j < n; j += lanes) {
      hn::Store(hn::Mul(factor, hn::Tanh(d, hn::Load(d, s + j))), d, s + j);
    }
  }
}

// s = -inf where the mask hides the key.
inline void hide_keys(const Mask& mask, const QueryTile& tile, const Strip& strip, float* s) {
  const std::int64_t k0 = strip.k0, k1 = strip.k0 + strip.n;
  for (std::int64_t r = strip.r0; r < strip.r0 + strip.rows; ++r, s += kKeyTile) {
    const std::int64_t i = tile.query(r), p = i + tile.sequence.shift();
    for_each_hidden_span(mask, i, p, k0, k1, [&](std::int64_t begin, std::int64_t end) {
      std::fill(s + (begin - k0), s + (end - k0), kMinusInfinity);
    });
  }
}

// Columns from n to the end of the vector hold no key. They become -inf, so that they get no
// weight.
inline void hide_padding(std::int64_t rows, std::int64_t n, float* s) {
  for (std::int64_t r = 0; r < rows; ++r, s += kKeyTile) {
    std::fill(s + n, s + padded(n), kMinusInfinity);
  }
}

// Turns products of q and k into exponents of 2: softcap, mask, padding.
inline void scores_to_exponents(const AttentionCall& call, const QueryTile& tile,
                                const Strip& strip, float* s) {
  if (call.args.softcap > 0) cap_scores(call.score_factor, strip.rows, strip.n, s);
  if (strip.state == TileState::partial) hide_keys(call.args.mask, tile, strip, s);
  hide_padding(strip.rows, strip.n, s);
}

// ---- running softmax ---------------------------------------------------------------------------

// The state of a tile's rows between two key tiles.
struct Running {
  float* max;          // [rows]: m, -inf before the first visible key
  float* sum;          // [rows]: l
  float* out;          // [rows, width]: sum of 2^(s - m) v
  std::int64_t width;  // of out

  Running from_row(std::int64_t r) const { return {max + r, sum + r, out + r * width, width}; }
};

inline void start(const Running& state, std::int64_t rows) {
  std::fill(state.max, state.max + rows, kMinusInfinity);
  std::fill(state.sum, state.sum + rows, 0.0f);
  std::fill(state.out, state.out + rows * state.width, 0.0f);
}

inline void scale_row(float factor, std::int64_t width, float* row) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < width; i += lanes) {
    hn::Store(hn::Mul(hn::Set(d, factor), hn::Load(d, row + i)), d, row + i);
  }
}

// s = 2^(s - m). Updates m and l, and rescales out if m has grown.
HWY_INLINE void update_row(const Running& state, std::int64_t n, float* s) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto largest = hn::Load(d, s);
  for (std::int64_t j = lanes; j < n; j += lanes) largest = hn::Max(largest, hn::Load(d, s + j));
  const float tile_max = hn::GetLane(hn::MaxOfLanes(d, largest)), old_max = *state.max;
  if (tile_max > old_max) {
    if (old_max != kMinusInfinity) {
      const float shrink = hn::GetLane(exp2(hn::Set(d, old_max - tile_max)));
      *state.sum *= shrink;
      scale_row(shrink, state.width, state.out);
    }
    *state.max = tile_max;
  }
  // Before the first visible key m is -inf, and -inf - -inf would be NaN.
  const auto offset = hn::Set(d, *state.max == kMinusInfinity ? 0.0f : *state.max);
  auto sum = hn::Zero(d);
  for (std::int64_t j = 0; j < n; j += lanes) {
    const auto weight = exp2(hn::Sub(hn::Load(d, s + j), offset));
    hn::Store(weight, d, s + j);
    sum = hn::Add(sum, weight);
  }
  *state.sum += hn::GetLane(hn::SumOfLanes(d, sum));
}

inline HWY_NOINLINE void update(const Running& state, std::int64_t rows, std::int64_t n, float* s) {
  for (std::int64_t r = 0; r < rows; ++r) update_row(state.from_row(r), n, s + r * kKeyTile);
}

// ---- dropout -----------------------------------------------------------------------------------

// A dropped weight becomes 0; the others are divided by 1 - p. The strip's first key is a multiple
// of 4.
inline HWY_NOINLINE void drop_weights(const Dropout& dropout, const QueryTile& tile,
                                      const Strip& strip, float* weights) {
  const F32 d;
  const U32 du;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto threshold = hn::Set(du, dropout_threshold(dropout.p));
  const auto keep = hn::Set(d, kept_factor(dropout.p));
  HWY_ALIGN std::uint32_t words[4 * hn::MaxLanes(du)];
  for (std::int64_t r = strip.r0; r < strip.r0 + strip.rows; ++r, weights += kKeyTile) {
    for (std::int64_t j = 0; j < strip.n; j += lanes) {
      if (j % (4 * lanes) == 0) {
        const auto u32 = [](std::int64_t x) { return static_cast<std::uint32_t>(x); };
        // The counters of dropout_words().
        store_philox_words(dropout.seed,
                           {u32((strip.k0 + j) / 4), u32(tile.query(r)), u32(tile.head(r)),
                            u32(tile.sequence.index)},
                           words);
      }
      const auto dropped =
          hn::RebindMask(d, hn::Lt(hn::Load(du, words + j % (4 * lanes)), threshold));
      const auto weight = hn::Mul(keep, hn::Load(d, weights + j));
      hn::Store(hn::IfThenZeroElse(dropped, weight), d, weights + j);
    }
  }
}

// ---- the end -----------------------------------------------------------------------------------

// Log of the sum of exponentials, in base e.
inline float row_lse(const Running& state) {
  constexpr float kLn2 = 0.693147180559945f;
  if (*state.sum == 0.0f) return kMinusInfinity;
  return (*state.max + std::log2(*state.sum)) * kLn2;
}

// The factor for out at the end: 1 / l. A row that saw no key stays zero.
inline float row_factor(const Running& state) {
  return *state.sum == 0.0f ? 0.0f : 1.0f / *state.sum;
}

template <typename T>
void store_row(const float* row, float factor, std::int64_t dim, T* to) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < dim; i += lanes) {
    const auto v = hn::Mul(hn::Set(d, factor), hn::Load(d, row + i));
    store_f32_up_to(d, v, to + i, static_cast<std::size_t>(std::min(lanes, dim - i)));
  }
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
