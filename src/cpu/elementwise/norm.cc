// LayerNorm and RMSNorm, one row at a time. A row is read from memory once, into an f32 scratch
// row. That row fits the L1 cache for every model in use, and all passes run over it there.
//
//   x  r0  r1  r2      1. gather: each partial sum rounded to the dtype
//    \  |   |  /
//     +-+---+-+------> sum                                    (x after dropout, if any)
//         |
//       row [n] f32    2. the mean (0 for RMSNorm)
//         |            3. the mean of (row - mean)^2          -> 1 / deviation
//         +----------> 4. out = (row - mean) / deviation * weight + bias
//
// Subtracting the mean before squaring keeps all bits when the mean is much larger than the
// deviation; E[x^2] - E[x]^2 would lose them.
#include "cpu/elementwise/norm.h"

#include <algorithm>
#include <cmath>

#include "core/rows.h"
#include "core/thread_pool.h"
#include "core/type_switch.h"
#include "core/workspace.h"
#include "cpu/elementwise/for_each_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/elementwise/norm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/simd/philox-inl.h"
#include "cpu/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

using F32 = hn::ScalableTag<float>;

constexpr std::size_t kMaxResiduals = std::tuple_size_v<decltype(NormArgs::residuals)>;

// Four sums run at once, because an addition takes about four cycles and a new one can start in
// each cycle.
constexpr std::size_t kSums = 4;

// n rounded up to whole steps of kSums vectors; at most norm_scratch_row(n).
std::size_t padded(std::size_t n) {
  const std::size_t step = kSums * hn::Lanes(F32());
  return (n + step - 1) / step * step;
}

// One row of every tensor.
template <typename T>
struct RowOf {
  const T* x;
  const T* residuals[kMaxResiduals];
  int n_residuals;
  T* sum;  // null without residuals
  T* out;
};

// Dropout of one row of x, from left to right.
class DropRow {
 public:
  DropRow(const Dropout& dropout, std::int64_t row)
      : dropout_(dropout), row_(row), threshold_(dropout_threshold(dropout.p)) {}

  // Elements i, i + 1, ... of the row in f32. A dropped element is 0; the others are divided by 1 -
  // p and rounded.
  template <typename T>
  HWY_INLINE hn::Vec<F32> drop(hn::Vec<F32> v, std::size_t i) {
    const F32 d;
    const U32 du;
    const std::size_t at = i % (4 * hn::Lanes(d));
    if (at == 0) {
      const auto u32 = [](auto x) { return static_cast<std::uint32_t>(x); };
      // The counters of norm_dropout_words().
      store_philox_words(dropout_.seed,
                         {u32(i / 4), u32(row_), u32(row_ >> 32), kNormDropoutStream}, words_);
    }
    const auto dropped = hn::Lt(hn::Load(du, words_ + at), hn::Set(du, threshold_));
    const auto kept = rounded_to<T>(d, hn::Mul(v, hn::Set(d, kept_factor(dropout_.p))));
    return hn::IfThenZeroElse(hn::RebindMask(d, dropped), kept);
  }

 private:
  Dropout dropout_;
  std::int64_t row_;
  std::uint32_t threshold_;
  HWY_ALIGN std::uint32_t words_[4 * hn::MaxLanes(U32())];
};

// row = ((x + r0) + r1) + r2
template <bool kDrops, typename T>
void gather(const RowOf<T>& from, std::size_t n, [[maybe_unused]] DropRow drops, float* row) {
  const F32 d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t i = 0; i < n; i += lanes) {
    const std::size_t count = std::min(lanes, n - i);
    auto v = load_f32_up_to(d, from.x + i, count);
    if constexpr (kDrops) v = drops.drop<T>(v, i);
    for (int r = 0; r < from.n_residuals; ++r) {
      v = rounded_to<T>(d, hn::Add(v, load_f32_up_to(d, from.residuals[r] + i, count)));
    }
    if (from.sum) store_f32_up_to(d, v, from.sum + i, count);
    hn::Store(v, d, row + i);
  }
}

// Sum of (row - centre)^power for power 1 and 2, over n.
template <int power>
float mean_of(float* row, std::size_t n, float centre) {
  const F32 d;
  const std::size_t lanes = hn::Lanes(d), end = padded(n);
  std::fill(row + n, row + end, centre);  // the padding adds nothing
  const auto c = hn::Set(d, centre);
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  const auto add = [&](std::size_t i, auto& sum) HWY_ATTR {
    const auto v = hn::Sub(hn::Load(d, row + i), c);
    sum = power == 1 ? hn::Add(sum, v) : hn::MulAdd(v, v, sum);
  };
  for (std::size_t i = 0; i < end; i += kSums * lanes) {
    add(i, s0);
    add(i + lanes, s1);
    add(i + 2 * lanes, s2);
    add(i + 3 * lanes, s3);
  }
  const auto total = hn::Add(hn::Add(s0, s1), hn::Add(s2, s3));
  return hn::GetLane(hn::SumOfLanes(d, total)) / static_cast<float>(n);
}

// out = (row - mean) * scale * weight + bias; bias may be null.
template <typename T>
void write_out(const float* row, std::size_t n, float mean, float scale, const float* weight,
               const float* bias, T* out) {
  const F32 d;
  const std::size_t lanes = hn::Lanes(d);
  const auto centre = hn::Set(d, mean), factor = hn::Set(d, scale);
  for (std::size_t i = 0; i < n; i += lanes) {
    const std::size_t count = std::min(lanes, n - i);
    const auto normal = hn::Mul(hn::Sub(hn::Load(d, row + i), centre), factor);
    auto v = hn::Mul(normal, load_f32_up_to(d, weight + i, count));
    if (bias) v = hn::Add(v, load_f32_up_to(d, bias + i, count));
    store_f32_up_to(d, v, out + i, count);
  }
}

template <typename T>
void norm_row(const RowOf<T>& at, std::size_t n, bool centred, float eps, const float* weight,
              const float* bias, float* row) {
  const float mean = centred ? mean_of<1>(row, n, 0.f) : 0.f;
  const float variance = mean_of<2>(row, n, mean);
  write_out(row, n, mean, 1.f / std::sqrt(variance + eps), weight, bias, at.out);
}

// A weight or bias in f32; null if it was not given.
const float* as_f32(Workspace::Frame& frame, const Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  if (tensor.dtype == DType::f32) return tensor.ptr<const float>();
  float* row = frame.take<float>(tensor.shape[0]);
  with_float_type(tensor.dtype, [&](auto type) HWY_ATTR {
    convert_row_to_f32(F32(), tensor.ptr<const decltype(type)>(), row,
                       static_cast<std::size_t>(tensor.shape[0]));
  });
  return row;
}

void norm(Context& ctx, const NormArgs& args, bool centred) {
  const Rows x(args.x), sum(args.sum), out(args.out);
  const Rows residuals[] = {Rows(args.residuals[0]), Rows(args.residuals[1]),
                            Rows(args.residuals[2])};
  const auto given = [](const Tensor& residual) { return residual.defined(); };
  const int n_residuals =
      static_cast<int>(std::count_if(args.residuals.begin(), args.residuals.end(), given));
  const std::size_t n = static_cast<std::size_t>(x.cols());
  if (n == 0) return;

  Workspace::Frame frame(ctx.workspace());
  const float* weight = as_f32(frame, args.weight);
  const float* bias = as_f32(frame, args.bias);
  const std::int64_t scratch_stride = norm_scratch_row(x.cols());
  float* scratch = frame.take<float>(checked_mul(ctx.threads(), scratch_stride));

  with_float_type(args.x.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_row(ctx.pool(), x.rows(), x.cols(), [&](std::int64_t i, int worker) HWY_ATTR {
      RowOf<T> at{x.row<T>(i), {}, n_residuals, nullptr, out.row<T>(i)};
      for (int r = 0; r < n_residuals; ++r) at.residuals[r] = residuals[r].row<T>(i);
      if (n_residuals > 0) at.sum = sum.row<T>(i);
      float* row = scratch + worker * scratch_stride;
      if (args.dropout.p > 0) {
        gather</*kDrops=*/true>(at, n, DropRow(args.dropout, i), row);
      } else {
        gather</*kDrops=*/false>(at, n, DropRow({}, i), row);
      }
      norm_row(at, n, centred, args.eps, weight, bias, row);
    });
  });
}

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(norm);

std::int64_t norm_scratch_bytes(Context& ctx, const NormArgs& args) {
  const std::int64_t n = args.x.size(-1);
  ScratchSize size;
  for (const Tensor* vector : {&args.weight, &args.bias}) {
    if (vector->defined() && vector->dtype != DType::f32) size.add<float>(n);
  }
  return size.add<float>(checked_mul(ctx.threads(), norm_scratch_row(n))).bytes();
}

void layer_norm(Context& ctx, const NormArgs& args) {
  HWY_DYNAMIC_DISPATCH(norm)(ctx, args, /*centred=*/true);
}

void rms_norm(Context& ctx, const NormArgs& args) {
  HWY_DYNAMIC_DISPATCH(norm)(ctx, args, /*centred=*/false);
}

}  // namespace tessera::cpu
#endif
