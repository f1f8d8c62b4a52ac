#include "cuda/attention/backward/portable.h"

#include <climits>
#include <type_traits>

#include "core/checked.h"
#include "core/half.h"
#include "cuda/attention/backward/portable_call.h"
#include "cuda/attention/portable/instance.h"

namespace tessera::cuda::backward {
namespace {

constexpr int kMostDim = 128;  // wider sums do not fit into registers

template <typename F>
void with_types(const AttentionCall& call, F&& fn) {
  const auto with_dim = [&](auto type) {
    if (call.dim <= 64) return fn(type, std::integral_constant<int, 64>());
    if (call.dim <= 80) return fn(type, std::integral_constant<int, 80>());
    if (call.dim <= 96) return fn(type, std::integral_constant<int, 96>());
    return fn(type, std::integral_constant<int, kMostDim>());
  };
  if (call.dtype == DType::f16) return with_dim(Half());
  return with_dim(BFloat16());
}

}  // namespace

bool portable_takes(const BackwardRequest& request) {
  const AttentionCall& call = request.call();
  return request.forward.tensor_cores && call.dim <= kMostDim && most_key_tiles(call, 64) < INT_MAX;
}

void run_portable(Context& ctx, const BackwardRequest& request, Workspace::Frame& frame) {
  AttentionCall call = request.call();
  keep_within_positions(call.mask);
  const std::int64_t batch = call.q_offsets != nullptr ? 1 : call.sequences;
  const std::int64_t rows = checked_mul(checked_mul(batch, call.heads), call.n_q);
  const RowValues values{
      .exponent = frame.take<float>(rows), .delta = frame.take<float>(rows), .rows = call.n_q};
  find_row_values(ctx, call, request.d_out, request.vectors, values);
  with_types(call, [&](auto type, auto dim) {
    launch_portable<decltype(type), dim()>(ctx, call,
                                           {.d_out = request.d_out,
                                            .d_q = request.d_q,
                                            .d_k = request.d_k,
                                            .d_v = request.d_v,
                                            .values = values,
                                            .vectors = request.vectors});
  });
}

}  // namespace tessera::cuda::backward
