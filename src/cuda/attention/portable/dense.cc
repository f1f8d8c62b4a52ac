#include "cuda/attention/portable/dense.h"

#include <cstdint>
#include <cstdlib>

#include "cuda/attention/portable/dense_call.h"
#include "cuda/attention/portable/instance.h"

namespace tessera::cuda::dense {
namespace {

// Rows are counted in 32 bits, and the stride in bytes between two rows must fit too.
bool has_short_rows(const HeadRows& rows, std::int64_t n) {
  constexpr std::int64_t kMost = INT32_MAX / 2;  // elements of two bytes
  return n <= 1 || std::abs(rows.row_stride) <= kMost;
}

}  // namespace

bool takes(const AttentionRequest& request) {
  const AttentionCall& call = request.call;
  if (!request.tensor_cores || request.rows() <= kFewRows) return false;
  const bool banded = call.mask.kind == Mask::Kind::full || call.mask.kind == Mask::Kind::causal ||
                      call.mask.kind == Mask::Kind::window;
  if (!banded || call.q_offsets != nullptr || call.page_table != nullptr || call.capped ||
      call.dropping || call.inv_freq != nullptr || call.has_codes()) {
    return false;
  }
  // The largest score is the largest product only where the scale is positive.
  if (!(call.scale > 0) || !request.units.vectors) return false;
  // A block has the rows of one head. A few queries of many heads are better handled together, as
  // mma.cuh does.
  constexpr std::int64_t kManyQueries = 128;
  if (call.group > 1 && call.n_q < kManyQueries) return false;
  return has_short_rows(call.q, call.n_q) && has_short_rows(call.k, call.n_k) &&
         has_short_rows(call.v, call.n_k) && has_short_rows(call.out, call.n_q);
}

AttentionPlan plan(const AttentionRequest& request) {
  AttentionPlan plan(request);
  keep_within_positions(plan.call.mask);
  return plan;
}

void run(Context& ctx, const AttentionPlan& plan, Workspace::Frame&) {
  with_tensor_core_types(
      plan.call, [&](auto type, auto dim) { launch<decltype(type), dim()>(ctx, plan.call); });
}

}  // namespace tessera::cuda::dense
