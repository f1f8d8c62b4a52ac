#include "tessera/linear.h"

#include <cmath>
#include <cstdint>
#include <string>

#include "core/build_config.h"
#include "core/checked.h"
#include "cpu/linear/linear.h"
#include "cpu/linear/weight_tiles.h"
#include "cuda/linear/layout/tile_sizes.h"
#include "cuda/linear/linear.h"
#include "ops/check_weight.h"
#include "ops/op_scope.h"
#include "quant/codec.h"

namespace tessera {
namespace {

// How messages name a weight and its tensors. Constants: a call that is fine makes no texts.
struct WeightNames {
  const char *weight, *data, *scales, *zeros, *row_scales;
};
constexpr WeightNames kWeight{"weight", "weight.data", "weight.scales", "weight.zeros",
                              "weight.row_scales"};
constexpr WeightNames kGate{"gate", "gate.data", "gate.scales", "gate.zeros", "gate.row_scales"};
constexpr WeightNames kUp{"up", "up.data", "up.scales", "up.zeros", "up.row_scales"};

// One tensor of a weight in tiles, of a dtype that has been checked.
void check_tiles_of(const OpScope& op, const char* arg, const Tensor& tensor, std::int64_t tiles,
                    std::int64_t size) {
  op.shape(arg, tensor, {tiles, size});
  op.require(tensor.is_contiguous(), "{} must be contiguous, as prepare() makes it, got {}", arg,
             tensor);
  op.require(reinterpret_cast<std::uintptr_t>(tensor.data) % Buffer::kAlignment == 0,
             "{} must start on a {}-byte boundary, as prepare() makes it", arg, Buffer::kAlignment);
}

// Sizes of the tensors of a weight in tiles.
struct Tiles {
  std::int64_t tiles, bytes, scales;
};

Tiles tiles_of(const OpScope& op, const char* arg, const Weight& weight) {
  const bool on_cpu = weight.layout == WeightLayout::cpu_tiles;
  op.require(on_cpu ? cpu::has_tiles(weight.format, weight.group)
                    : cuda::has_tiles(weight.format, weight.group),
             "{} is {} in groups of {}, which has no layout {}; use prepare() to make one", arg,
             name(weight.format), weight.group, on_cpu ? "cpu_tiles" : "cuda_tiles");
  if (on_cpu) {
    const cpu::TileSizes sizes =
        cpu::tile_sizes(weight.format, weight.group, weight.out_features, weight.in_features);
    return {sizes.tiles, sizes.bytes, checked_mul(sizes.scales, cpu::kWeightTileN)};
  }
  const cuda::TileSizes sizes = cuda::tile_sizes(info(weight.format).bits, weight.group,
                                                 weight.out_features, weight.in_features);
  return {sizes.tiles, sizes.tile_bytes, sizes.tile_scales};
}

// A weight as prepare() makes it.
void check_tiles(const OpScope& op, const WeightNames& names, const Weight& weight) {
  op.require(weight.out_features >= 0 && weight.in_features >= 0, "{} has a negative size: {}",
             names.weight, weight);
  const Tiles sizes = tiles_of(op, names.weight, weight);
  const DType code_dtype = quant::code_dtype(weight.format);
  op.input(names.data, weight.data, {code_dtype});
  check_tiles_of(op, names.data, weight.data, sizes.tiles, sizes.bytes);
  if (weight.layout == WeightLayout::cuda_tiles) {
    op.input(names.scales, weight.scales, {cuda::tile_scale_dtype(weight.format)});
  } else {
    check_scale_dtype(op, names.scales, weight);
  }
  check_tiles_of(op, names.scales, weight.scales, sizes.tiles, sizes.scales);
  op.require(std::isfinite(weight.tensor_scale), "{}.tensor_scale is {}; it must be finite",
             names.weight, weight.tensor_scale);
  if (weight.layout == WeightLayout::cuda_tiles) {
    op.input(names.row_scales, weight.row_scales, {DType::f32});
    check_tiles_of(op, names.row_scales, weight.row_scales, 1, sizes.tiles * cuda::kTileHeight);
  }
  check_takes_zeros(op, names.weight, weight);
  if (!weight.zeros.defined()) return;
  op.input(names.zeros, weight.zeros, {code_dtype});
  check_tiles_of(op, names.zeros, weight.zeros, sizes.tiles, sizes.scales);
}

// The weight, its fit to x and its distance from out.
void check_factor(const OpScope& op, const WeightNames& names, const Weight& weight,
                  const Tensor& x, const Tensor& out) {
  const char* arg = names.weight;
  op.require(weight.defined(), "{} was not given", arg);
  const WeightLayout tiles = x.device.is_cpu() ? WeightLayout::cpu_tiles : WeightLayout::cuda_tiles;
  if (weight.layout == tiles) {
    check_tiles(op, names, weight);
  } else {
    check_weight(op, arg, weight);
  }
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

void check(const OpScope& op, const LinearArgs& args) {
  check_in_and_out(op, args.x, args.out);
  check_factor(op, kWeight, args.weight, args.x, args.out);
  check_activation(op, args.activation);
  check_bias(op, "bias", args.bias, args.out);
  if (args.residual.defined()) {
    op.input("residual", args.residual, {args.out.dtype});
    op.same_shape("residual", args.residual, "out", args.out);
    op.no_overlap("out", args.out, "residual", args.residual, /*same_view_is_fine=*/true);
  }
}

std::int64_t scratch_bytes(Context& ctx, const LinearArgs& args) {
  if (ctx.device().is_cpu()) return cpu::linear_scratch_bytes(ctx, args);
  if constexpr (kHaveCuda) return cuda::linear_scratch_bytes(ctx, args);
  return 0;
}

std::int64_t scratch_bytes(Context& ctx, const GatedLinearArgs& args) {
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
  const OpScope op(ctx, "linear");
  check(op, args);
  if (op.only_counts([&] { return scratch_bytes(ctx, args); })) return;
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
  if (op.only_counts([&] { return scratch_bytes(ctx, args); })) return;
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
