// The tile arithmetic of the attention kernels: loading rows into f32 tiles, a transpose, a matrix
// product, exp2. All matrices are small, row-major f32 scratch.

// Per-target include guard: Highway includes this file once for each SIMD target.
#if defined(TESSERA_CPU_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_CPU_ATTENTION_TILE_INL_H_
#undef TESSERA_CPU_ATTENTION_TILE_INL_H_
#else
#define TESSERA_CPU_ATTENTION_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "core/cache_dtype.h"
#include "core/type_switch.h"
#include "cpu/attention/attention.h"
#include "cpu/simd/fp8-inl.h"
#include "cpu/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

using F32 = hn::ScalableTag<float>;
using Vec = hn::Vec<F32>;

// `n` rounded up to whole vectors: the width of a tile's rows.
HWY_INLINE std::int64_t padded(std::int64_t n) {
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(F32()));
  return (n + lanes - 1) / lanes * lanes;
}

// The block of the matrix product below: rows of a tile come in multiples of it.
inline constexpr std::int64_t kBlockRows = 4;
inline constexpr int kBlockVectors = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

HWY_INLINE std::int64_t whole_blocks(std::int64_t rows) {
  return (rows + kBlockRows - 1) / kBlockRows * kBlockRows;
}

// ---- loading -----------------------------------------------------------------------------------

// Calls fn(T{}) with the element type of k and v.
template <typename F>
void with_key_type(DType dtype, F&& fn) {
  if (dtype == DType::f8e4m3) return fn(E4M3{});
  if (dtype == DType::i8) return fn(std::int8_t{});
  with_float_type(dtype, fn);
}

// to [n, width] = factor * rows [n, dim], zero from dim on.
template <typename T>
void load_rows(const T* const* rows, std::int64_t n, std::int64_t dim, float factor,
               std::int64_t width, float* to) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto f = hn::Set(d, factor);
  for (std::int64_t r = 0; r < n; ++r, to += width) {
    for (std::int64_t i = 0; i < dim; i += lanes) {
      const std::size_t count = static_cast<std::size_t>(std::min(lanes, dim - i));
      hn::Store(hn::Mul(f, load_f32_up_to(d, rows[r] + i, count)), d, to + i);
    }
  }
}

// Loads q [rows, width] of a tile, times `factor`. Rows that fill up the last block are zero.
template <typename T>
void load_queries(const Tensor& tensor, const QueryTile& tile, std::int64_t dim, float factor,
                  std::int64_t width, float* to) {
  for (std::int64_t r = 0; r < tile.rows(); ++r) {
    const T* row = query_row<const T>(tensor, tile.sequence, tile.query(r), tile.head(r));
    load_rows(&row, 1, dim, factor, width, to + r * width);
  }
  std::fill(to + tile.rows() * width, to + whole_blocks(tile.rows()) * width, 0.0f);
}

// Loads queries of any dtype. They are loaded once, while k and v are used for many rows: q's dtype
// is not worth an instance of a kernel.
inline void load_queries(const AttentionCall& call, const QueryTile& tile, std::int64_t width,
                         float* to) {
  with_float_type(call.args.q.dtype, [&](auto type) HWY_ATTR {
    load_queries<decltype(type)>(call.args.q, tile, call.dim, call.q_factor, width, to);
  });
}

// to = row with the pairs (i, i + pairs) rotated, from pair i on, as long as a whole vector of D is
// left. Returns the first pair that is not done.
template <class D, typename T>
HWY_INLINE std::int64_t rotate_vectors(D d, const float* cos, const float* sin, std::int64_t i,
                                       std::int64_t pairs, const T* row, float* to) {
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (; i + lanes <= pairs; i += lanes) {
    const auto a = load_f32(d, row + i), b = load_f32(d, row + pairs + i);
    const auto c = hn::LoadU(d, cos + i), s = hn::LoadU(d, sin + i);
    hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, to + i);
    hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), d, to + pairs + i);
  }
  return i;
}

// The same for pairs that fill exactly one vector together: its halves are swapped.
template <typename T>
HWY_INLINE Vec rotated_vector([[maybe_unused]] const float* cos, [[maybe_unused]] const float* sin,
                              const T* row) {
  const F32 d;
  const auto v = load_f32(d, row);
#if HWY_TARGET == HWY_SCALAR  // one lane holds no pair
  return v;
#else
  const hn::Half<F32> half;
  const auto c = hn::LoadU(half, cos), s = hn::LoadU(half, sin);
  const auto swapped = hn::ConcatLowerUpper(d, v, v);
  return hn::MulAdd(swapped, hn::Combine(d, s, hn::Neg(s)), hn::Mul(v, hn::Combine(d, c, c)));
#endif
}

// Rotates all pairs, with the roundings of src/cpu/elementwise/rotary.cc: f32 keys come out as if
// they had been rotated before they were stored. Partial rotary often has fewer pairs than a vector
// has lanes.
template <typename T>
HWY_INLINE void rotate_halves(const float* cos, const float* sin, std::int64_t pairs, const T* row,
                              float* to) {
  if (2 * pairs == static_cast<std::int64_t>(hn::Lanes(F32()))) {
    return hn::StoreU(rotated_vector(cos, sin, row), F32(), to);
  }
  std::int64_t i = rotate_vectors(F32(), cos, sin, 0, pairs, row, to);
  if (i == pairs) return;
  i = rotate_vectors(hn::CappedTag<float, 8>(), cos, sin, i, pairs, row, to);
  i = rotate_vectors(hn::CappedTag<float, 4>(), cos, sin, i, pairs, row, to);
  rotate_vectors(hn::CappedTag<float, 1>(), cos, sin, i, pairs, row, to);
}

// Rotates the pairs (2 i, 2 i + 1) one by one, with the same roundings.
template <typename T>
HWY_INLINE void rotate_neighbours(const float* cos, const float* sin, std::int64_t pairs,
                                  const T* row, float* to) {
  const hn::CappedTag<float, 1> d;
  for (std::int64_t i = 0; i < pairs; ++i) {
    const auto a = hn::Set(d, to_float(row[2 * i])), b = hn::Set(d, to_float(row[2 * i + 1]));
    const auto c = hn::Set(d, cos[i]), s = hn::Set(d, sin[i]);
    to[2 * i] = hn::GetLane(hn::NegMulAdd(b, s, hn::Mul(a, c)));
    to[2 * i + 1] = hn::GetLane(hn::MulAdd(a, s, hn::Mul(b, c)));
  }
}

// to [n, width] = the keys [k0, k0 + n), zero from dim on. If the call asks for it, key k0 + r is
// rotated by position k0 + r.
template <typename T>
void load_keys(const AttentionCall& call, const T* const* rows, std::int64_t k0, std::int64_t n,
               std::int64_t width, float* to) {
  const KeyRotation& rope = call.rope;
  if (!rope.defined()) return load_rows(rows, n, call.dim, 1.0f, width, to);
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(F32()));
  const std::int64_t rotated = 2 * rope.pairs / lanes * lanes;  // whole vectors of rotated elements
  for (std::int64_t r = 0; r < n; ++r, to += width) {
    if (rotated < width) {
      const T* rest = rows[r] + rotated;
      load_rows(&rest, 1, call.dim - rotated, 1.0f, width, to + rotated);
    }
    const float *cos = rope.cos(k0 + r), *sin = rope.sin(k0 + r);
    if (rope.style == RopeStyle::interleaved) {
      rotate_neighbours(cos, sin, rope.pairs, rows[r], to);
    } else {
      rotate_halves(cos, sin, rope.pairs, rows[r], to);
    }
  }
}

// to [width, kKeyTile] = rows [n, width]^T, in squares of 4 x 4. Columns from n to the end of the
// last square hold whatever the scratch held there.
inline void transpose(const float* rows, std::int64_t n, std::int64_t width, float* to) {
#if HWY_TARGET == HWY_SCALAR
  for (std::int64_t c = 0; c < width; ++c) {
    for (std::int64_t r = 0; r < n; ++r) to[c * kKeyTile + r] = rows[r * width + c];
  }
#else
  const hn::FixedTag<float, 4> d4;
  const hn::FixedTag<double, 2> d2;
  for (std::int64_t c = 0; c < width; c += 4) {
    for (std::int64_t r = 0; r < n; r += 4) {
      const float* from = rows + r * width + c;
      const auto r0 = hn::Load(d4, from), r1 = hn::Load(d4, from + width);
      const auto r2 = hn::Load(d4, from + 2 * width), r3 = hn::Load(d4, from + 3 * width);
      const auto low01 = hn::BitCast(d2, hn::InterleaveLower(d4, r0, r1));   // 00 10 01 11
      const auto low23 = hn::BitCast(d2, hn::InterleaveLower(d4, r2, r3));   // 20 30 21 31
      const auto high01 = hn::BitCast(d2, hn::InterleaveUpper(d4, r0, r1));  // 02 12 03 13
      const auto high23 = hn::BitCast(d2, hn::InterleaveUpper(d4, r2, r3));  // 22 32 23 33
      float* out = to + c * kKeyTile + r;
      hn::Store(hn::BitCast(d4, hn::InterleaveLower(d2, low01, low23)), d4, out);
      hn::Store(hn::BitCast(d4, hn::InterleaveUpper(d2, low01, low23)), d4, out + kKeyTile);
      hn::Store(hn::BitCast(d4, hn::InterleaveLower(d2, high01, high23)), d4, out + 2 * kKeyTile);
      hn::Store(hn::BitCast(d4, hn::InterleaveUpper(d2, high01, high23)), d4, out + 3 * kKeyTile);
    }
  }
#endif
}

// ---- scales of 8-bit keys and values -----------------------------------------------------------
//
// A scale belongs to a whole row of k or v. So it leaves both products: codes are multiplied, and
// then scores or weights by the scale of their key.

// s [rows, kKeyTile] *= the scales of the keys [k0, k0 + n) of one head; columns from n on are
// padding. Does nothing if keys have no scales.
inline void apply_scales(const AttentionCall& call, const Tensor& scales, const QueryTile& tile,
                         std::int64_t rows, std::int64_t k0, std::int64_t n, float* s) {
  if (!scales.defined()) return;
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const bool is_e4m3 = call.args.k.dtype == DType::f8e4m3;
  const float* at[kKeyTile];
  HWY_ALIGN float factors[kKeyTile] = {};
  point_at_keys(call.args, scales.transpose(1, 2), tile.sequence, tile.kv_head, k0, n, at);
  for (std::int64_t j = 0; j < n; ++j) factors[j] = is_e4m3 ? *at[j] / kE4M3Unit : *at[j];
  for (std::int64_t r = 0; r < rows; ++r, s += kKeyTile) {
    for (std::int64_t j = 0; j < n; j += lanes) {
      hn::Store(hn::Mul(hn::Load(d, s + j), hn::Load(d, factors + j)), d, s + j);
    }
  }
}

// ---- the matrix product ------------------------------------------------------------------------
//
//   C [M, N] (+)= A [M, K] B [K, N]
//
// A block of kBlockRows x kBlockVectors accumulators stays in registers over the whole of K. Per
// step of K it loads kBlockVectors vectors of B and broadcasts one element of A for each row: 8
// loads for 16 multiply-adds with AVX-512's 32 registers, 6 for 8 with the 16 registers of AVX2.
//
//              B  |====|====|          lanes run along N
//   A  | a |      |    |    |
//      | a |   C  |    |    |
// A is given by its two strides, so that a transposed A costs nothing.
struct Factor {
  const float* at;
  std::int64_t row, k;
};

template <int kRows, int kVectors, bool kAdd, class BRow>
HWY_INLINE void multiply_block(Factor a, std::int64_t k_size, const BRow& b_row, std::int64_t n,
                               float* HWY_RESTRICT c, std::int64_t c_row) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Vec sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = kAdd ? hn::Load(d, c + r * c_row + v * lanes) : hn::Zero(d);
    }
  }
  for (std::int64_t k = 0; k < k_size; ++k) {
    const auto* HWY_RESTRICT b = b_row(k) + n;
    Vec b_vectors[kVectors];
    for (int v = 0; v < kVectors; ++v) b_vectors[v] = load_f32(d, b + v * lanes);
    for (int r = 0; r < kRows; ++r) {
      const auto broadcast = hn::Set(d, a.at[r * a.row + k * a.k]);
      for (int v = 0; v < kVectors; ++v) {
        sum[r][v] = hn::MulAdd(broadcast, b_vectors[v], sum[r][v]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::Store(sum[r][v], d, c + r * c_row + v * lanes);
  }
}

// Computes all rows of kVectors vectors along N. That part of B stays in the L1 cache.
template <int kRows, int kVectors, bool kAdd, class BRow>
HWY_INLINE void multiply_columns(std::int64_t m_size, std::int64_t k_size, Factor a,
                                 const BRow& b_row, std::int64_t n, float* c, std::int64_t c_row) {
  for (std::int64_t m = 0; m < m_size; m += kRows, a.at += kRows * a.row, c += kRows * c_row) {
    multiply_block<kRows, kVectors, kAdd>(a, k_size, b_row, n, c + n, c_row);
  }
}

// m_size is a multiple of kRows, n_size of a vector; b_row(k) points at row k of B, f32, f16 or
// bf16.
template <int kRows, bool kAdd, class BRow>
HWY_INLINE void multiply_rows(std::int64_t m_size, std::int64_t n_size, std::int64_t k_size,
                              Factor a, const BRow& b_row, float* c, std::int64_t c_row) {
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(F32()));
  std::int64_t n = 0;
  for (; n + kBlockVectors * lanes <= n_size; n += kBlockVectors * lanes) {
    multiply_columns<kRows, kBlockVectors, kAdd>(m_size, k_size, a, b_row, n, c, c_row);
  }
  if constexpr (kBlockVectors > 2) {
    if (n + 2 * lanes <= n_size) {
      multiply_columns<kRows, 2, kAdd>(m_size, k_size, a, b_row, n, c, c_row);
      n += 2 * lanes;
    }
  }
  if (n < n_size) multiply_columns<kRows, 1, kAdd>(m_size, k_size, a, b_row, n, c, c_row);
}

// C = A B, and C += A B, for B [K, b_width] in scratch; m_size is rounded up to whole blocks.
inline HWY_NOINLINE void multiply(std::int64_t m_size, std::int64_t n_size, std::int64_t k_size,
                                  Factor a, const float* b, std::int64_t b_width, float* c,
                                  std::int64_t c_width) {
  const auto b_row = [b, b_width](std::int64_t k) HWY_ATTR { return b + k * b_width; };
  multiply_rows<kBlockRows, false>(m_size, n_size, k_size, a, b_row, c, c_width);
}

inline HWY_NOINLINE void multiply_add(std::int64_t m_size, std::int64_t n_size, std::int64_t k_size,
                                      Factor a, const float* b, std::int64_t b_width, float* c,
                                      std::int64_t c_width) {
  const auto b_row = [b, b_width](std::int64_t k) HWY_ATTR { return b + k * b_width; };
  multiply_rows<kBlockRows, true>(m_size, n_size, k_size, a, b_row, c, c_width);
}

// ---- exp2 --------------------------------------------------------------------------------------

// 2^x for x <= 0 (and a little above): 2^n from the exponent bits, 2^f for |f| <= 1/2 from a
// polynomial. Relative error below 2^-23; 2^0 is exactly 1. Below -126 the result is 0, also for
// -inf; NaN stays NaN.
HWY_INLINE Vec exp2(Vec x) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const auto n = hn::Round(x), f = hn::Sub(x, n);
  // Minimax polynomial for (2^f - 1) / f. The relative error of 2^f is below 4e-9, so rounding
  // dominates.
  auto y = hn::Set(d, 0.00015469731977475548f);
  y = hn::MulAdd(y, f, hn::Set(d, 0.0013410000966100157f));
  y = hn::MulAdd(y, f, hn::Set(d, 0.0096180307825051538f));
  y = hn::MulAdd(y, f, hn::Set(d, 0.055502973141993248f));
  y = hn::MulAdd(y, f, hn::Set(d, 0.24022651084117294f));
  y = hn::MulAdd(y, f, hn::Set(d, 0.69314722539501109f));
  y = hn::MulAdd(y, f, hn::Set(d, 1.0f));
  const auto power = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127)));
  const auto result = hn::Mul(y, hn::BitCast(d, power));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0f)), result);
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
