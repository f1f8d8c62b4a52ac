// Softmax over the last dimension, one row at a time. The row is read once, into an f32 scratch
// row. All further passes run over that.
//
//   x [n] -- 1. load: to f32, and the largest element ---> row
//            2. exponentials: exp(scale * (row - largest)), and their sum
//   out <--- 3. store: row / sum
//
// The largest element is subtracted before scaling, so that every exponent is 0 or less and nothing
// can overflow.
#include "cpu/elementwise/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/rows.h"
#include "core/type_switch.h"
#include "core/workspace.h"
#include "cpu/elementwise/for_each_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/elementwise/softmax.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After highway.h.
#include <hwy/contrib/math/math-inl.h>

#include "cpu/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

using F32 = hn::ScalableTag<float>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// n rounded up to whole vectors.
std::size_t padded(std::size_t n) {
  const std::size_t lanes = hn::Lanes(F32());
  return (n + lanes - 1) / lanes * lanes;
}

// Returns the largest element, or NaN if the row holds one. The padding is -inf.
template <typename T>
float load_row(const T* x, std::size_t n, float* row) {
  const F32 d;
  const std::size_t lanes = hn::Lanes(d);
  convert_row_to_f32(d, x, row, n);
  std::fill(row + n, row + padded(n), -kInfinity);
  auto largest = hn::Set(d, -kInfinity);
  auto nan = hn::FirstN(d, 0);  // kept apart, because Max may drop a NaN
  for (std::size_t i = 0; i < n; i += lanes) {
    const auto v = hn::Load(d, row + i);
    largest = hn::Max(largest, v);
    nan = hn::Or(nan, hn::IsNaN(v));
  }
  return hn::AllFalse(d, nan) ? hn::GetLane(hn::MaxOfLanes(d, largest)) : kNan;
}

// row = exp(scale * (row - largest)); returns the sum. -inf, and with it the padding, gives 0.
float exponentials(float* row, std::size_t n, float scale, float largest) {
  const F32 d;
  const auto factor = hn::Set(d, scale), offset = hn::Set(d, largest);
  auto sum = hn::Zero(d);
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    const auto e = hn::Exp(d, hn::Mul(factor, hn::Sub(hn::Load(d, row + i), offset)));
    hn::Store(e, d, row + i);
    sum = hn::Add(sum, e);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

template <typename T>
void store_row(const float* row, std::size_t n, float factor, T* out) {
  const F32 d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t i = 0; i < n; i += lanes) {
    const auto v = hn::Mul(hn::Load(d, row + i), hn::Set(d, factor));
    store_f32_up_to(d, v, out + i, std::min(lanes, n - i));
  }
}

template <typename In, typename Out>
void softmax_row(const In* x, std::size_t n, float scale, float* row, Out* out) {
  const float largest = load_row(x, n, row);
  if (largest == -kInfinity) {
    std::fill(out, out + n, from_float<Out>(0.f));
  } else if (std::isnan(largest) || largest == kInfinity) {
    std::fill(out, out + n, from_float<Out>(kNan));
  } else {
    const float sum = exponentials(row, n, scale, largest);
    store_row(row, n, 1.f / sum, out);
  }
}

void softmax(Context& ctx, const SoftmaxArgs& args) {
  const Rows x(args.x), out(args.out);
  const std::size_t n = static_cast<std::size_t>(x.cols());
  const std::int64_t scratch_stride = static_cast<std::int64_t>(padded(n));
  Workspace::Frame frame(ctx.workspace());
  float* scratch = frame.take<float>(checked_mul(ctx.threads(), scratch_stride));
  with_float_type(args.x.dtype, [&](auto in_type) {
    with_float_type(args.out.dtype, [&](auto out_type) {
      using In = decltype(in_type);
      using Out = decltype(out_type);
      for_each_row(ctx.pool(), x.rows(), x.cols(), [&](std::int64_t i, int worker) HWY_ATTR {
        softmax_row(x.row<const In>(i), n, args.scale, scratch + worker * scratch_stride,
                    out.row<Out>(i));
      });
    });
  });
}

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(softmax);

void softmax(Context& ctx, const SoftmaxArgs& args) { HWY_DYNAMIC_DISPATCH(softmax)(ctx, args); }

}  // namespace tessera::cpu
#endif
