#include "tessera/linear.h"

#include <cstdint>
#include <string>

#include "core/build_config.h"
#include "cpu/linear/linear.h"
#include "cuda/linear/linear.h"
#include "ops/apart_adds.h"
#include "ops/check_tiles.h"
#include "ops/op_scope.h"

namespace tessera {
namespace {

constexpr WeightNames kGate{"gate", "gate.data", "gate.scales", "gate.zeros", "gate.row_scales"};
constexpr WeightNames kUp{"up", "up.data", "up.scales", "up.zeros", "up.row_scales"};

// Checks the weight, that it fits x, and that it does not overlap out.
void check_factor(const OpScope& op, const WeightNames& names, const Weight& weight,
                  const Tensor& x, const Tensor& out) {
  const char* arg = names.weight;
  check_weight_for(op, names, weight, x.device);
  op.require(x.size(-1) == weight.in_features,
             "x {} does not fit {} {}: its last dimension must be {}", x, arg, weight,
             weight.in_features);
  op.require(out.size(-1) == weight.out_features,
             "out {} does not fit {} {}: its last dimension must be {}", out, arg, weight,
             weight.out_features);
  for (const Tensor* part : {&weight.data, &weight.scales, &weight.zeros, &weight.row_scales}) {
    op.no_overlap("out", out, arg, *part);
  }
}

void check_in_and_out(const OpScope& op, const Tensor& x, const Tensor& out) {
  op.input("x", x, {DType::f32, DType::f16, DType::bf16});
  op.output("out", out, {DType::f32, DType::f16, DType::bf16});
  bool same_rows = x.rank == out.rank;
  for (int d = 0; same_rows && d < x.rank - 1; ++d) same_rows = x.shape[d] == out.shape[d];
  op.require(same_rows, "out {} must have the shape of x {} in all but the last dimension", out, x);
  op.no_overlap("out", out, "x", x);
}

void check_bias(const OpScope& op, const char* arg, const Tensor& bias, const Tensor& out) {
  if (!bias.defined()) return;
  op.input(arg, bias, {DType::f32, DType::f16, DType::bf16});
  op.shape(arg, bias, {out.size(-1)});
  op.no_overlap("out", out, arg, bias);
}

void check_activation(const OpScope& op, Activation activation) {
  op.require(activation <= Activation::silu, "{} is not the number of an activation",
             static_cast<int>(activation));
}

void check_fixed_rows(const OpScope& op, const Tensor& x, std::int64_t fixed_rows) {
  op.require(fixed_rows < 0 || x.rank == 2, "x {} must be [rows, in] if there are fixed rows", x);
  op.require(fixed_rows <= 0 || fixed_rows <= x.size(0), "{} fixed rows were given, but x is {}",
             fixed_rows, x);
}

void check_linear(const OpScope& op, const LinearArgs& args) {
  check_in_and_out(op, args.x, args.out);
  check_factor(op, kWeightNames, args.weight, args.x, args.out);
  check_activation(op, args.activation);
  check_fixed_rows(op, args.x, args.fixed_rows);
  check_bias(op, "bias", args.bias, args.out);
  if (args.residual.defined()) {
    op.input("residual", args.residual, {args.out.dtype});
    op.same_shape("residual", args.residual, "out", args.out);
    op.no_overlap("out", args.out, "residual", args.residual, /*same_view_is_fine=*/true);
  }
}

std::int64_t linear_scratch_bytes(Context& ctx, const LinearArgs& args) {
  if (ctx.device().is_cpu()) return cpu::linear_scratch_bytes(ctx, args);
  if constexpr (kHaveCuda) return cuda::linear_scratch_bytes(ctx, args);
  return 0;
}

std::int64_t linear_scratch_bytes(Context& ctx, const GatedLinearArgs& args) {
  if (ctx.device().is_cpu()) return cpu::gated_linear_scratch_bytes(ctx, args);
  if constexpr (kHaveCuda) return cuda::gated_linear_scratch_bytes(ctx, args);
  return 0;
}

std::int64_t product_flops(const Tensor& x, const Weight& weight) {
  return 2 * x.numel() * weight.out_features;
}

}  // namespace

std::string_view name(Activation activation) {
  switch (activation) {
    case Activation::none:
      return "none";
    case Activation::relu:
      return "relu";
    case Activation::gelu:
      return "gelu";
    case Activation::gelu_tanh:
      return "gelu_tanh";
    case Activation::silu:
      return "silu";
  }
  return "";
}

void linear(Context& ctx, const LinearArgs& args) {
  if (has_apart_adds(ctx, args)) return linear_with_apart_adds(ctx, args);
  const OpScope op(ctx, "linear");
  check_linear(op, args);
  if (op.only_counts([&] { return linear_scratch_bytes(ctx, args); })) return;
  op.run([&] { return "x " + to_string(args.x) + " weight " + to_string(args.weight); },
         [&] { return cpu::linear(ctx, args); }, [&] { return cuda::linear(ctx, args); },
         [&] {
           return OpCost{args.x.bytes() + args.weight.bytes() + args.bias.bytes() +
                             args.residual.bytes() + args.out.bytes(),
                         product_flops(args.x, args.weight)};
         });
}

void gated_linear(Context& ctx, const GatedLinearArgs& args) {
  const OpScope op(ctx, "gated_linear");
  check_in_and_out(op, args.x, args.out);
  check_factor(op, kGate, args.gate, args.x, args.out);
  check_factor(op, kUp, args.up, args.x, args.out);
  check_bias(op, "gate_bias", args.gate_bias, args.out);
  check_bias(op, "up_bias", args.up_bias, args.out);
  check_activation(op, args.activation);
  check_fixed_rows(op, args.x, args.fixed_rows);
  if (op.only_counts([&] { return linear_scratch_bytes(ctx, args); })) return;
  op.run(
      [&] {
        return "x " + to_string(args.x) + " gate " + to_string(args.gate) + " up " +
               to_string(args.up);
      },
      [&] { return cpu::gated_linear(ctx, args); }, [&] { return cuda::gated_linear(ctx, args); },
      [&] {
        return OpCost{args.x.bytes() + args.gate.bytes() + args.up.bytes() +
                          args.gate_bias.bytes() + args.up_bias.bytes() + args.out.bytes(),
                      product_flops(args.x, args.gate) + product_flops(args.x, args.up)};
      });
}

}  // namespace tessera
