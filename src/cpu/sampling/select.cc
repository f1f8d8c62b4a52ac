// The largest elements of each row.
//
// argmax takes two passes: the first finds the largest value, the second finds its first index.
// Both are plain vector loops, and the second ends early.
//
// top_k keeps the best k seen so far in a heap whose front is the worst of them. A vector with no
// element that beats the front costs one comparison. With a vocabulary of 128K and a small k that
// is nearly every vector.
//
//   x:  [ first k ] [ v v v v ] [ v v v v ] ...        heap (k): front = the one to beat
//       make a heap    none beats the front: next vector
//                      some do: each of them replaces the front
#include "cpu/sampling/select.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/rows.h"
#include "core/type_switch.h"
#include "core/workspace.h"
#include "cpu/elementwise/for_each_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/sampling/select.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

using F32 = hn::ScalableTag<float>;

// ---- argmax ------------------------------------------------------------------------------------

// The first NaN, or else the first of the largest elements; n > 0.
template <typename T>
std::int64_t argmax_row(const T* x, std::size_t n) {
  const F32 d;
  const std::size_t lanes = hn::Lanes(d);
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto largest = lowest;
  auto nan = hn::FirstN(d, 0);  // kept apart, because Max may drop a NaN
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = load_f32(d, x + i);
    largest = hn::Max(largest, v);
    nan = hn::Or(nan, hn::IsNaN(v));
  }
  if (i < n) {
    const auto v = load_f32_n(d, x + i, n - i);
    largest = hn::Max(largest, hn::IfThenElse(hn::FirstN(d, n - i), v, lowest));
    nan = hn::Or(nan, hn::IsNaN(v));
  }

  const bool any_nan = !hn::AllFalse(d, nan);
  const auto target = hn::MaxOfLanes(d, largest);
  for (i = 0; i < n; i += lanes) {
    const auto v = load_f32_up_to(d, x + i, std::min(lanes, n - i));
    const std::intptr_t lane = hn::FindFirstTrue(d, any_nan ? hn::IsNaN(v) : hn::Eq(v, target));
    if (lane >= 0) return static_cast<std::int64_t>(i) + lane;
  }
  return 0;  // not reached: the target is in the row
}

void argmax(Context& ctx, const ArgmaxArgs& args) {
  const Rows x(args.x), indices(args.indices);
  with_float_type(args.x.dtype, [&](auto type) {
    with_index_type(args.indices.dtype, [&](auto index_type) {
      using T = decltype(type);
      using Index = decltype(index_type);
      for_each_row(ctx.pool(), x.rows(), x.cols(), [&](std::int64_t i, int) HWY_ATTR {
        Index* index = indices.row<Index>(i / indices.cols()) + i % indices.cols();
        *index =
            static_cast<Index>(argmax_row(x.row<const T>(i), static_cast<std::size_t>(x.cols())));
      });
    });
  });
}

// ---- top_k -------------------------------------------------------------------------------------

using Candidate = TopKCandidate;

// NaN comes first, then larger values, then lower indices.
bool comes_first(const Candidate& a, const Candidate& b) {
  const bool a_is_nan = std::isnan(a.value), b_is_nan = std::isnan(b.value);
  if (a_is_nan != b_is_nan) return a_is_nan;
  if (!a_is_nan && a.value != b.value) return a.value > b.value;
  return a.index < b.index;
}

// heap = the first k in the order of comes_first, best first; 0 < k <= n.
template <typename T>
void top_k_row(const T* x, std::int64_t n, std::int64_t k, Candidate* heap) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < k; ++i) heap[i] = {to_float(x[i]), i};
  std::make_heap(heap, heap + k,
                 comes_first);  // with comes_first as "less", the front is the worst

  for (std::int64_t i = k; i < n; i += lanes) {
    const std::int64_t count = std::min(lanes, n - i);
    const auto v = load_f32_up_to(d, x + i, static_cast<std::size_t>(count));
    // An equal value loses to the front, whose index is lower.
    const auto beats = hn::Or(hn::Gt(v, hn::Set(d, heap->value)), hn::IsNaN(v));
    if (HWY_LIKELY(hn::AllFalse(d, beats))) continue;
    for (std::int64_t at = i; at < i + count; ++at) {
      const Candidate candidate{to_float(x[at]), at};
      if (!comes_first(candidate, *heap)) continue;
      std::pop_heap(heap, heap + k, comes_first);
      heap[k - 1] = candidate;
      std::push_heap(heap, heap + k, comes_first);
    }
  }
  std::sort_heap(heap, heap + k, comes_first);
}

void top_k(Context& ctx, const TopKArgs& args) {
  const Rows x(args.x), values(args.values), indices(args.indices);
  const std::int64_t n = x.cols(), k = values.cols();
  if (k == 0) return;
  Workspace::Frame frame(ctx.workspace());
  Candidate* heaps = frame.take<Candidate>(checked_mul(ctx.threads(), k));
  with_float_type(args.x.dtype, [&](auto type) {
    with_index_type(args.indices.dtype, [&](auto index_type) {
      using T = decltype(type);
      using Index = decltype(index_type);
      for_each_row(ctx.pool(), x.rows(), n, [&](std::int64_t i, int worker) HWY_ATTR {
        const T* row = x.row<const T>(i);
        Candidate* best = heaps + worker * k;
        top_k_row(row, n, k, best);
        for (std::int64_t j = 0; j < k; ++j) {
          values.row<T>(i)[j] = row[best[j].index];
          indices.row<Index>(i)[j] = static_cast<Index>(best[j].index);
        }
      });
    });
  });
}

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(argmax);
HWY_EXPORT(top_k);

void argmax(Context& ctx, const ArgmaxArgs& args) { HWY_DYNAMIC_DISPATCH(argmax)(ctx, args); }
void top_k(Context& ctx, const TopKArgs& args) { HWY_DYNAMIC_DISPATCH(top_k)(ctx, args); }

std::int64_t top_k_scratch_bytes(Context& ctx, std::int64_t k) {
  return ScratchSize().add<TopKCandidate>(checked_mul(ctx.threads(), k)).bytes();
}

}  // namespace tessera::cpu
#endif
