// Rotary position embedding. Each pair (a, b) of a head rotates by an angle that depends only on
// the token's position and the pair's number. So the cosines and sines of a token are computed
// once, for all of its heads and for all batches that share its position.
//
//   out_a = a cos - b sin      half_split:  a a a a b b b b | pass through
//   out_b = b cos + a sin      interleaved: a b a b a b a b | pass through
//                                           <--- dims ----->
//
// Interleaved pairs lie next to each other in a vector. With the tables written as
//   cos: c0 c0 c1 c1 ...   sin: -s0 s0 -s1 s1 ...
// the rotation is x * cos + swapped(x) * sin, where swapped() exchanges neighbours.
#include "cpu/elementwise/rotary.h"

#include <algorithm>
#include <cstring>

#include "core/thread_pool.h"
#include "core/type_switch.h"
#include "core/workspace.h"
#include "cpu/elementwise/for_each_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/elementwise/rotary.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After highway.h.
#include <hwy/contrib/math/math-inl.h>

#include "cpu/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

// The angle is computed and reduced to [-pi, pi] in float64. At position 10^7 its error is still
// only 2e-9; in f32 it would be half a radian.
void cos_sin_row(std::int64_t position, const float* inv_freq, std::size_t pairs, float* cos,
                 float* sin) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> d32;
  const std::size_t lanes = hn::Lanes(d);
  const auto p = hn::Set(d, static_cast<double>(position));
  const auto turns_per_radian = hn::Set(d, 0.15915494309189535);  // 1 / (2 pi)
  const auto radians_per_turn = hn::Set(d, 6.283185307179586);    // 2 pi
  for (std::size_t i = 0; i < pairs; i += lanes) {
    const std::size_t count = std::min(lanes, pairs - i);
    const auto angle = hn::Mul(p, hn::PromoteTo(d, load_f32_up_to(d32, inv_freq + i, count)));
    const auto turns = hn::Round(hn::Mul(angle, turns_per_radian));
    const auto reduced = hn::NegMulAdd(turns, radians_per_turn, angle);
    store_f32_up_to(d32, hn::DemoteTo(d32, hn::Cos(d, reduced)), cos + i, count);
    store_f32_up_to(d32, hn::DemoteTo(d32, hn::Sin(d, reduced)), sin + i, count);
  }
}

// cos, sin [pairs] -> cos2, sin2 [2 * pairs], as in the drawing above.
void interleave(const float* cos, const float* sin, std::size_t pairs, float* cos2, float* sin2) {
  for (std::size_t i = 0; i < pairs; ++i) {
    cos2[2 * i] = cos2[2 * i + 1] = cos[i];
    sin2[2 * i] = -sin[i];
    sin2[2 * i + 1] = sin[i];
  }
}

// cos, sin [half]
template <typename T>
void rotate_half_split(const T* x, const float* cos, const float* sin, std::size_t half, T* out) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t i = 0; i < half; i += lanes) {
    const std::size_t count = std::min(lanes, half - i);
    const auto a = load_f32_up_to(d, x + i, count), b = load_f32_up_to(d, x + half + i, count);
    const auto c = load_f32_up_to(d, cos + i, count), s = load_f32_up_to(d, sin + i, count);
    store_f32_up_to(d, hn::NegMulAdd(b, s, hn::Mul(a, c)), out + i, count);
    store_f32_up_to(d, hn::MulAdd(a, s, hn::Mul(b, c)), out + half + i, count);
  }
}

// cos2, sin2 [dims]; dims is even, so that no pair is cut by the end of a vector.
template <typename T>
void rotate_interleaved(const T* x, const float* cos2, const float* sin2, std::size_t dims,
                        T* out) {
#if HWY_TARGET == HWY_SCALAR  // vectors of one element have no neighbours to exchange
  for (std::size_t i = 0; i < dims; i += 2) {
    const float a = to_float(x[i]), b = to_float(x[i + 1]);
    out[i] = from_float<T>(a * cos2[i] + b * sin2[i]);
    out[i + 1] = from_float<T>(b * cos2[i + 1] + a * sin2[i + 1]);
  }
#else
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t i = 0; i < dims; i += lanes) {
    const std::size_t count = std::min(lanes, dims - i);
    const auto v = load_f32_up_to(d, x + i, count), swapped = hn::Shuffle2301(v);
    const auto c = load_f32_up_to(d, cos2 + i, count), s = load_f32_up_to(d, sin2 + i, count);
    store_f32_up_to(d, hn::MulAdd(swapped, s, hn::Mul(v, c)), out + i, count);
  }
#endif
}

// The tables of one position: [cos | sin], and after them, for interleaved pairs, [cos2 | sin2].
void make_tables(const Rope& rope, std::int64_t position, float* tables) {
  const std::size_t pairs = static_cast<std::size_t>(rope.inv_freq.shape[0]);
  cos_sin_row(position, rope.inv_freq.ptr<const float>(), pairs, tables, tables + pairs);
  if (rope.style == RopeStyle::interleaved) {
    interleave(tables, tables + pairs, pairs, tables + 2 * pairs, tables + 4 * pairs);
  }
}

// Rotates all heads of one token.
template <typename T>
void rotate_heads_as(const RotaryArgs& args, std::int64_t batch, std::int64_t token,
                     const float* tables) {
  const Tensor &x = args.x, &out = args.out;
  const T* x_token = x.ptr<const T>() + batch * x.strides[0] + token * x.strides[1];
  T* out_token = out.ptr<T>() + batch * out.strides[0] + token * out.strides[1];
  const std::size_t dims = static_cast<std::size_t>(args.rope.dims()), pairs = dims / 2;
  const std::size_t rest = static_cast<std::size_t>(x.shape[3]) - dims;
  for (std::int64_t h = 0; h < x.shape[2]; ++h) {
    const T* from = x_token + h * x.strides[2];
    T* to = out_token + h * out.strides[2];
    if (args.rope.style == RopeStyle::half_split) {
      rotate_half_split(from, tables, tables + pairs, pairs, to);
    } else {
      rotate_interleaved(from, tables + 2 * pairs, tables + 4 * pairs, dims, to);
    }
    if (from != to) std::memcpy(to + dims, from + dims, rest * sizeof(T));
  }
}

void rotate_heads(const RotaryArgs& args, std::int64_t batch, std::int64_t token,
                  const float* tables) {
  with_float_type(args.x.dtype, [&](auto type) HWY_ATTR {
    rotate_heads_as<decltype(type)>(args, batch, token, tables);
  });
}

void rotary(Context& ctx, const RotaryArgs& args) {
  const std::int64_t batches = args.x.shape[0], tokens = args.x.shape[1];
  const bool shared = args.positions.rank == 1;  // all batches share the positions
  const std::int64_t scratch_stride = rotary_scratch_row(args.rope.inv_freq.shape[0]);
  Workspace::Frame frame(ctx.workspace());
  float* scratch = frame.take<float>(checked_mul(ctx.threads(), scratch_stride));

  const std::int64_t rows = shared ? tokens : batches * tokens;
  const std::int64_t row_elements = (shared ? batches : 1) * args.x.shape[2] * args.x.shape[3];
  for_each_row(ctx.pool(), rows, row_elements, [&](std::int64_t row, int worker) HWY_ATTR {
    const std::int64_t batch = row / tokens, token = row % tokens;
    const std::int64_t at = shared ? token : batch * args.positions.strides[0] + token;
    float* tables = scratch + worker * scratch_stride;
    make_tables(args.rope, position_at(args.positions, at), tables);
    const std::int64_t first = shared ? 0 : batch, last = shared ? batches : batch + 1;
    for (std::int64_t b = first; b < last; ++b) rotate_heads(args, b, token, tables);
  });
}

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(rotary);
HWY_EXPORT(make_tables);
HWY_EXPORT(rotate_heads);
HWY_EXPORT(cos_sin_row);

std::int64_t rotary_scratch_bytes(Context& ctx, const RotaryArgs& args) {
  const std::int64_t row = rotary_scratch_row(args.rope.inv_freq.shape[0]);
  return ScratchSize().add<float>(checked_mul(ctx.threads(), row)).bytes();
}

void rotary(Context& ctx, const RotaryArgs& args) { HWY_DYNAMIC_DISPATCH(rotary)(ctx, args); }

void make_rotary_tables(const Rope& rope, std::int64_t position, float* tables) {
  HWY_DYNAMIC_DISPATCH(make_tables)(rope, position, tables);
}

void rotate_token(const RotaryArgs& args, std::int64_t batch, std::int64_t token,
                  const float* tables) {
  HWY_DYNAMIC_DISPATCH(rotate_heads)(args, batch, token, tables);
}

void rope_cos_sin(std::int64_t position, const float* inv_freq, std::int64_t pairs, float* cos,
                  float* sin) {
  HWY_DYNAMIC_DISPATCH(cos_sin_row)
  (position, inv_freq, static_cast<std::size_t>(pairs), cos, sin);
}

}  // namespace tessera::cpu
#endif
