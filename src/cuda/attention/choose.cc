#include "cuda/attention/choose.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "core/fail.h"
#include "cuda/attention/hopper/hopper.h"
#include "cuda/attention/portable/dense.h"
#include "cuda/attention/portable/tensor_core.h"
#include "cuda/runtime/state.h"
#include "cuda/tile/vectors.h"

namespace tessera::cuda {
namespace {

// Whether positions, and the blocks of a grid, are ints.
bool counts_in_ints(const AttentionArgs& args) {
  const std::int64_t kv_heads = args.k.shape[2], group = args.q.shape[2] / kv_heads;
  const std::int64_t keys =
      args.pages.defined() ? args.pages.table.shape[1] * args.k.shape[1] : args.k.shape[1];
  if (args.q.shape[1] > kMostPositions / group || keys > kMostPositions) return false;
  const std::int64_t sequences =
      args.q_offsets.defined() ? args.q_offsets.shape[0] : args.q.shape[0];
  const std::int64_t blocks = args.q.shape[1] * group / 64 + split::kMostSplits;  // of a head
  return sequences <= INT32_MAX / blocks / kv_heads;
}

constexpr std::int64_t kVector = 8;  // elements in 16 bytes

// Whether all rows of q, k, v and out are made of whole chunks of 16 bytes, and begin on one.
bool made_of_vectors(const AttentionArgs& args) {
  const Tensor* tensors[] = {&args.q, &args.k, &args.v, &args.out};
  return std::all_of(std::begin(tensors), std::end(tensors), [](const Tensor* tensor) {
    return rows_begin_on_vectors(*tensor) && tensor->size(-1) % kVector == 0;
  });
}

// A stride in units; one that nobody steps along may be anything.
std::uint32_t in_units(const Tensor& tensor, int d, std::int64_t unit) {
  return tensor.shape[d] > 1 ? static_cast<std::uint32_t>(tensor.strides[d] / unit) : 0u;
}

// Whether every row of a head lies less than 2^32 - 2 units behind its first.
bool counts_in_units(const Tensor& tensor, std::int64_t unit) {
  std::int64_t last = 0;
  for (int d = 0; d < 2; ++d) {
    if (tensor.shape[d] <= 1) continue;
    if (tensor.strides[d] < 0) return false;
    last += (tensor.shape[d] - 1) * tensor.strides[d];
  }
  return last / unit < 0xfffffffe;
}

}  // namespace

KeyUnits key_units(const AttentionArgs& args) {
  const bool vectors = made_of_vectors(args);
  const std::int64_t unit = vectors ? kVector : 1;
  return {.vectors = vectors,
          .k_batch = in_units(args.k, 0, unit),
          .k_row = in_units(args.k, 1, unit),
          .v_batch = in_units(args.v, 0, unit),
          .v_row = in_units(args.v, 1, unit),
          .page_size = static_cast<std::uint32_t>(args.k.shape[1])};
}

std::vector<const char*> portable_attention_kernels(const AttentionArgs& args) {
  const std::int64_t unit = made_of_vectors(args) ? kVector : 1;
  if (args.q.dtype == DType::f32 || !counts_in_ints(args) || !counts_in_units(args.k, unit) ||
      !counts_in_units(args.v, unit)) {
    return {kPlainAttention};
  }
  const std::int64_t rows = args.q.shape[1] * (args.q.shape[2] / args.k.shape[2]);
  if (rows <= kFewRows) return {kSplitAttention, kMmaAttention, kPlainAttention};
  if (args.q_offsets.defined()) return {kMixedAttention, kMmaAttention, kPlainAttention};
  if (dense::takes(args)) return {kDenseAttention, kMmaAttention, kPlainAttention};
  return {kMmaAttention, kPlainAttention};
}

std::vector<const char*> attention_kernels(Context& ctx, const AttentionArgs& args) {
  std::vector<const char*> kernels = portable_attention_kernels(args);
  if (!hopper_takes(state_of(ctx).limits(), args)) return kernels;
  // Few rows are a matter of reading keys, which the split kernel does from all multiprocessors.
  const bool first = kernels.front() != kSplitAttention && args.q.shape[1] >= kHopperRows;
  kernels.insert(first ? kernels.begin() : kernels.end(), kHopperAttention);
  return kernels;
}

const char* choose(Context& ctx, const AttentionArgs& args) {
  const std::vector<const char*> kernels = attention_kernels(ctx, args);
  const std::string_view forced = state_of(ctx).forced_attention();
  if (forced.empty()) return kernels.front();
  const auto found = std::find(kernels.begin(), kernels.end(), forced);
  if (found == kernels.end()) {
    fail(ErrorCode::invalid_argument, "the kernel {} cannot run this call", forced);
  }
  return *found;
}

void force_attention_kernel(Context& ctx, const char* kernel) {
  state_of(ctx).force_attention(kernel);
}

bool is_attention_kernel_forced(Context& ctx) { return !state_of(ctx).forced_attention().empty(); }

}  // namespace tessera::cuda
