#include "cuda/attention/backward/hopper/hopper.h"

#include <algorithm>

#include "core/checked.h"
#include "core/half.h"
#include "cuda/attention/backward/hopper/call.h"
#include "cuda/attention/backward/rows.h"
#include "cuda/attention/hopper/boxes.h"
#include "cuda/runtime/hopper_kernels.h"

namespace tessera::cuda::backward {
namespace {

// Queries, their gradients and sums of the heads that blocks work on at one time: as much as stays
// in an L2 cache of 50 MB.
constexpr std::int64_t kSectionBytes = 32 << 20;

int compiled_dim(int dim) { return dim <= 64 ? 64 : dim <= 80 ? 80 : dim <= 96 ? 96 : 128; }

template <typename T>
void launch_dim(const Launch& launch, int dim, const HopperGradients& gradients) {
  switch (compiled_dim(dim)) {
    case 64:
      return launch_hopper<T, 64>(launch, gradients);
    case 80:
      return launch_hopper<T, 80>(launch, gradients);
    case 96:
      return launch_hopper<T, 96>(launch, gradients);
    default:
      return launch_hopper<T, 128>(launch, gradients);
  }
}

// Without a mask all blocks take equally long, and the blocks of one head are best taken together.
std::int64_t section_heads(const AttentionCall& call) {
  if (call.mask.left < 0 && call.mask.right < 0) return 1;
  const std::int64_t head_bytes = std::max<std::int64_t>(1, call.n_q * call.dim * 8 * call.group);
  return std::clamp<std::int64_t>(kSectionBytes / head_bytes, 1, call.sequences * call.kv_heads);
}

}  // namespace

bool hopper_takes(const BackwardRequest& request) {
  const AttentionCall& call = request.call();
  if (!has_hopper_kernels(request.forward.gpu) || request.deterministic) return false;
  if (call.dtype != DType::f16 && call.dtype != DType::bf16) return false;
  if (call.q_offsets != nullptr || call.capped || call.dropping || !request.vectors) return false;
  if (call.mask.kind == Mask::Kind::blocks || call.dim % 8 != 0 || call.dim > 128) return false;
  if (call.n_q > kMostHopperRows || call.n_k > kMostHopperRows || call.n_q < 1 || call.n_k < 1)
    return false;
  if (call.sequences * call.heads > kMostHopperRows / std::max(call.n_q, call.n_k)) return false;
  return can_be_boxed(boxed(call, call.q, call.n_q, call.heads, 64)) &&
         can_be_boxed(boxed(call, request.d_out, call.n_q, call.heads, 64)) &&
         can_be_boxed(boxed(call, call.k, call.n_k, call.kv_heads, 64)) &&
         can_be_boxed(boxed(call, call.v, call.n_k, call.kv_heads, 64));
}

void run_hopper(Context& ctx, const BackwardRequest& request, Workspace::Frame& frame) {
  const AttentionCall& call = request.call();
  const int queries = hopper_queries(call.dim);
  const std::int64_t query_tiles = tiles_of(call.n_q, queries);
  const std::int64_t rows = checked_mul(call.sequences * call.heads, query_tiles * queries);
  const std::int64_t sums =
      checked_mul(call.sequences * call.heads * query_tiles, 2 * kPieceFloats);
  const RowValues values{.exponent = frame.take<float>(rows),
                         .delta = frame.take<float>(rows),
                         .rows = query_tiles * queries};
  auto* d_q_sums = frame.take<float>(sums);
  find_row_values(ctx, call, request.d_out, request.vectors, values);
  {
    const DeviceGuard guard(ctx.device());
    check(cudaMemsetAsync(d_q_sums, 0, static_cast<std::size_t>(sums) * sizeof(float),
                          static_cast<cudaStream_t>(ctx.stream())),
          "attention_backward: clearing sums");
  }
  const HopperGradients gradients{
      .q = make_tensor_map(boxed(call, call.q, call.n_q, call.heads, queries)),
      .k = make_tensor_map(boxed(call, call.k, call.n_k, call.kv_heads, kHopperKeys)),
      .v = make_tensor_map(boxed(call, call.v, call.n_k, call.kv_heads, kHopperKeys)),
      .d_out = make_tensor_map(boxed(call, request.d_out, call.n_q, call.heads, queries)),
      .exponent = values.exponent,
      .delta = values.delta,
      .d_q_sums = d_q_sums,
      .d_k = request.d_k,
      .d_v = request.d_v,
      .heads = static_cast<int>(call.heads),
      .kv_heads = static_cast<int>(call.kv_heads),
      .group = static_cast<int>(call.group),
      .dim = call.dim,
      .n_q = static_cast<int>(call.n_q),
      .n_k = static_cast<int>(call.n_k),
      .query_tiles = static_cast<int>(query_tiles),
      .key_tiles = static_cast<int>(tiles_of(call.n_k, kHopperKeys)),
      .left = band_side(call.mask.left),
      .right = band_side(call.mask.right),
      .n_sink = band_side(call.mask.n_sink),
      .q_factor = call.q_factor,
      .scale = call.scale,
      .section_heads = static_cast<int>(section_heads(call)),
      .all_heads = static_cast<int>(call.sequences * call.kv_heads),
  };
  {
    const Launch launch(ctx, "attention_backward");
    if (call.dtype == DType::f16) {
      launch_dim<Half>(launch, call.dim, gradients);
    } else {
      launch_dim<BFloat16>(launch, call.dim, gradients);
    }
  }
  finish_queries(ctx, call, request.d_q, queries, static_cast<int>(query_tiles), d_q_sums);
}

}  // namespace tessera::cuda::backward
