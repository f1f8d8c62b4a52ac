// argmax() and top_k() on a GPU: whether rows are cut into parts, and the scratch for that.
#include "cuda/sampling/select.h"

#include <algorithm>
#include <limits>

#include "core/checked.h"
#include "core/fail.h"
#include "core/rows.h"
#include "core/workspace.h"
#include "cuda/runtime/state.h"
#include "cuda/sampling/select_kernels.h"

namespace tessera::cuda {
namespace {

using Key = unsigned long long;

void check_length(const char* op, std::int64_t n) {
  if (n > std::numeric_limits<std::uint32_t>::max()) {
    fail(ErrorCode::unsupported, "{}: rows of {} elements are too long for a GPU; use the CPU", op,
         n);
  }
}

// From this many rows on, one block for each row keeps the GPU busy.
std::int64_t many_rows(Context& ctx) { return state_of(ctx).limits().multiprocessors / 2 + 1; }

bool parts_pay(std::int64_t width, std::int64_t k) {
  return select_parts_of(width) >= 4 && k <= kMostInTwoPasses;
}

std::int64_t keys_of(std::int64_t rows, std::int64_t width, std::int64_t k) {
  return checked_mul(checked_mul(rows, select_parts_of(width)), k);
}

void select(Context& ctx, const char* op, DType dtype, const PickedRows& x, std::int64_t k,
            const Tensor& values, const Tensor& indices) {
  check_length(op, x.cols());
  if (indices.numel() == 0) return;
  if (x.rows() >= many_rows(ctx) || !parts_pay(x.cols(), k)) {
    return select_rows(ctx, op, dtype, x, k, values, indices);
  }
  Workspace::Frame frame(ctx.workspace());
  select_parts(ctx, op, dtype, x, k, frame.take<Key>(keys_of(x.rows(), x.cols(), k)), values,
               indices);
}

}  // namespace

std::int64_t select_scratch_bytes(Context& ctx, std::int64_t rows, std::int64_t width,
                                  std::int64_t k) {
  if (!parts_pay(width, k)) return 0;
  const std::int64_t most = std::min(rows, many_rows(ctx) - 1);
  return ScratchSize().add<Key>(keys_of(most, width, k)).bytes();
}
std::int64_t select_scratch_bytes(Context& ctx, const Tensor& x, std::int64_t k) {
  return select_scratch_bytes(ctx, Rows(x).rows(), x.size(-1), k);
}

void argmax(Context& ctx, const ArgmaxArgs& args) {
  select(ctx, "argmax", args.x.dtype, PickedRows(args.x), 1, Tensor(), args.indices);
}

void top_k(Context& ctx, const TopKArgs& args) {
  select(ctx, "top_k", args.x.dtype, PickedRows(args.x), args.values.size(-1), args.values,
         args.indices);
}

void top_of_picked(Context& ctx, const char* op, const Tensor& x, const Tensor& rows,
                   const Tensor& values, const Tensor& indices) {
  select(ctx, op, x.dtype, PickedRows(x, rows), values.size(-1), values, indices);
}

}  // namespace tessera::cuda
