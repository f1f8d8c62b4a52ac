#include "cuda/attention/portable/dense.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "cuda/attention/choose.h"

namespace tessera::cuda::dense {
namespace {

// Rows are counted in 32 bits, and so is the distance of two.
bool has_short_rows(const Tensor& tensor) {
  constexpr std::int64_t kMost = INT32_MAX / 2;  // elements of two bytes
  return tensor.shape[1] <= 1 || std::abs(tensor.strides[1]) <= kMost;
}

}  // namespace

bool takes(const AttentionArgs& args) {
  const AttentionCall call(args, MaskView::of(args.mask));
  const bool banded = call.mask.kind == Mask::Kind::full || call.mask.kind == Mask::Kind::causal ||
                      call.mask.kind == Mask::Kind::window;
  if (!banded || call.q_offsets != nullptr || call.page_table != nullptr || call.capped ||
      call.dropping || call.inv_freq != nullptr) {
    return false;
  }
  // The largest score is the largest product only where the scale is positive.
  if (!(call.scale > 0) || !key_units(args).vectors) return false;
  // A block has the rows of one head: few queries of many heads are better taken together, as
  // mma.cuh does.
  constexpr std::int64_t kManyQueries = 128;
  if (call.group > 1 && call.n_q < kManyQueries) return false;
  const Tensor* tensors[] = {&args.q, &args.k, &args.v, &args.out};
  return std::all_of(std::begin(tensors), std::end(tensors),
                     [](const Tensor* tensor) { return has_short_rows(*tensor); });
}

}  // namespace tessera::cuda::dense
