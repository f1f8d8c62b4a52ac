// linear() and gated_linear() on a GPU: plans a call (choose.h), counts its scratch, runs it.
#include "cuda/linear/linear.h"

#include <algorithm>

#include "core/checked.h"
#include "core/workspace.h"
#include "cuda/linear/call.h"
#include "cuda/linear/choose.h"
#include "cuda/linear/portable/plain.h"
#include "cuda/linear/product.h"

namespace tessera::cuda {
namespace {

// x W^T as f32 [M, N], in the workspace.
const float* multiply_bare(const LinearCall& call, const PlannedKernel& planned,
                           const Weight& weight, Workspace::Frame& frame) {
  const Tensor out = frame.take(DType::f32, {call.m, weight.out_features});
  const Product bare = bare_product(call.product.x, weight, out);
  planned.run({call.ctx, bare, call.m});
  return out.ptr<float>();
}

const char* run(Context& ctx, const Product& product) {
  const LinearCall call{ctx, product, tokens_of(product.x)};
  const LinearPlan plan = plan_linear(call);
  if (product.out.numel() == 0) return plan.name();
  if (!plan.apart) {
    plan.product.run(call);
    return plan.name();
  }
  Workspace::Frame frame(ctx.workspace());
  const float* first = multiply_bare(call, plan.product, product.weight, frame);
  const float* up = product.gated() ? multiply_bare(call, plan.up, product.up, frame) : nullptr;
  run_epilogue(ctx, {.product = first,
                     .up = up,
                     .bias = product.bias,
                     .up_bias = product.up_bias,
                     .activation = product.activation,
                     .residual = product.residual,
                     .out = product.out});
  return plan.name();
}

// What run() takes of the workspace for this many tokens.
std::int64_t scratch_bytes(const LinearCall& call) {
  const LinearPlan plan = plan_linear(call);
  if (!plan.apart) return plan.product.scratch_bytes();
  const std::int64_t product = matrix_bytes(call.m, call.product.weight.out_features, DType::f32);
  const std::int64_t first = checked_add(product, plan.product.scratch_bytes());
  if (!call.product.gated()) return first;
  const std::int64_t both =
      checked_add(product, matrix_bytes(call.m, call.product.up.out_features, DType::f32));
  return std::max(first, checked_add(both, plan.up.scratch_bytes()));
}

// With more tokens a kernel takes more; with fewer tokens it may be another kernel.
std::int64_t most_scratch_bytes(Context& ctx, const Product& product) {
  const std::int64_t m = tokens_of(product.x);
  std::int64_t most = scratch_bytes({ctx, product, m});
  for (const std::int64_t fewer : tokens_of_other_kernels(product)) {
    if (fewer < m) most = std::max(most, scratch_bytes({ctx, product, fewer}));
  }
  return most;
}

}  // namespace

std::int64_t linear_scratch_bytes(Context& ctx, const LinearArgs& args) {
  return most_scratch_bytes(ctx, product_of(args));
}
std::int64_t gated_linear_scratch_bytes(Context& ctx, const GatedLinearArgs& args) {
  return most_scratch_bytes(ctx, product_of(args));
}

const char* linear(Context& ctx, const LinearArgs& args) { return run(ctx, product_of(args)); }
const char* gated_linear(Context& ctx, const GatedLinearArgs& args) {
  return run(ctx, product_of(args));
}

}  // namespace tessera::cuda
