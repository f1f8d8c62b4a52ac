#include "tessera/norm.h"

#include <cmath>
#include <string>

#include "cpu/elementwise/norm.h"
#include "cuda/norm/norm.h"
#include "ops/op_scope.h"

namespace tessera {
namespace {

// Counts the residuals and refuses a gap among them.
int count_residuals(const OpScope& op, const NormArgs& args) {
  int count = 0;
  for (int i = 0; i < 3; ++i) {
    if (!args.residuals[i].defined()) continue;
    op.require(i == count, "residuals[{}] was given but residuals[{}] was not: fill them in order",
               i, count);
    ++count;
  }
  return count;
}

// The tensor must have the shape and dtype of x.
void check_like_x(const OpScope& op, const char* arg, const Tensor& tensor, const Tensor& x) {
  op.require(tensor.dtype == x.dtype, "{} is {}, but x is {}: they must be the same", arg,
             name(tensor.dtype), name(x.dtype));
  op.same_shape(arg, tensor, "x", x);
}

void check_outputs(const OpScope& op, const NormArgs& args, int n_residuals) {
  const Tensor& x = args.x;
  static constexpr const char* kResidual[] = {"residuals[0]", "residuals[1]", "residuals[2]"};
  const auto check = [&](const char* arg, const Tensor& out) {
    op.output(arg, out, {DType::f32, DType::f16, DType::bf16});
    check_like_x(op, arg, out, x);
    op.no_overlap(arg, out, "x", x, /*same_view_is_fine=*/true);
    for (int i = 0; i < n_residuals; ++i) {
      op.no_overlap(arg, out, kResidual[i], args.residuals[i], /*same_view_is_fine=*/true);
    }
    op.no_overlap(arg, out, "weight", args.weight);
    op.no_overlap(arg, out, "bias", args.bias);
  };
  for (int i = 0; i < n_residuals; ++i) {
    op.input(kResidual[i], args.residuals[i], {DType::f32, DType::f16, DType::bf16});
    check_like_x(op, kResidual[i], args.residuals[i], x);
  }
  check("out", args.out);
  if (n_residuals == 0) {
    op.require(!args.sum.defined(), "sum was given without residuals: it would be a copy of x");
    return;
  }
  op.require(args.sum.defined(), "sum was not given; with residuals it receives x + residuals");
  check("sum", args.sum);
  op.no_overlap("out", args.out, "sum", args.sum);
}

int check_norm(const OpScope& op, const NormArgs& args, bool takes_bias) {
  const Tensor& x = args.x;
  op.input("x", x, {DType::f32, DType::f16, DType::bf16});
  const std::int64_t n = x.size(-1);
  op.input("weight", args.weight, {DType::f32, DType::f16, DType::bf16});
  op.shape("weight", args.weight, {n});
  if (args.bias.defined()) {
    op.require(takes_bias, "bias was given; use layer_norm for a norm with a bias");
    op.input("bias", args.bias, {DType::f32, DType::f16, DType::bf16});
    op.shape("bias", args.bias, {n});
  }
  op.require(std::isfinite(args.eps) && args.eps >= 0, "eps is {}; it must be 0 or more", args.eps);
  const int n_residuals = count_residuals(op, args);
  const float p = args.dropout.p;
  op.require(p >= 0 && p < 1, "dropout p is {}; it must be in [0, 1)", p);
  op.require(p == 0 || n_residuals > 0,
             "dropout p is {} without residuals: dropout applies to x before the residuals are "
             "added; give at least one residual, or p = 0",
             p);
  check_outputs(op, args, n_residuals);
  return n_residuals;
}

OpCost norm_cost(const NormArgs& args, int n_residuals, int flops_per_element) {
  const int tensors = 2 + n_residuals + (n_residuals > 0);  // x, out, residuals, sum
  return {tensors * args.x.bytes() + args.weight.bytes() + args.bias.bytes(),
          (flops_per_element + n_residuals) * args.x.numel()};
}

std::string describe_norm(const NormArgs& args, int n_residuals) {
  return "x " + to_string(args.x) + " residuals " + std::to_string(n_residuals) +
         (args.dropout.p > 0 ? " dropout" : "");
}

// A norm needs no scratch on a GPU.
std::int64_t norm_scratch_bytes(Context& ctx, const NormArgs& args) {
  return ctx.device().is_cpu() ? cpu::norm_scratch_bytes(ctx, args) : 0;
}

}  // namespace

void layer_norm(Context& ctx, const NormArgs& args) {
  const OpScope op(ctx, "layer_norm");
  const int n_residuals = check_norm(op, args, /*takes_bias=*/true);
  if (op.only_counts([&] { return norm_scratch_bytes(ctx, args); })) return;
  op.run([&] { return describe_norm(args, n_residuals); },
         [&] {
           cpu::layer_norm(ctx, args);
           return "cpu";
         },
         [&] { return cuda::layer_norm(ctx, args); },
         [&] {
           // Total, difference, square and its total, difference, scale, weight, bias.
           return norm_cost(args, n_residuals, 8);
         });
}

void rms_norm(Context& ctx, const NormArgs& args) {
  const OpScope op(ctx, "rms_norm");
  const int n_residuals = check_norm(op, args, /*takes_bias=*/false);
  if (op.only_counts([&] { return norm_scratch_bytes(ctx, args); })) return;
  op.run([&] { return describe_norm(args, n_residuals); },
         [&] {
           cpu::rms_norm(ctx, args);
           return "cpu";
         },
         [&] { return cuda::rms_norm(ctx, args); },
         [&] {
           // Square and its total, scale, weight.
           return norm_cost(args, n_residuals, 4);
         });
}

}  // namespace tessera
