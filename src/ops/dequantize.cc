// Decodes a weight of any format into a dense matrix.
#include "cuda/quant/dequantize.h"

#include "core/checked.h"
#include "core/rows.h"
#include "core/type_switch.h"
#include "core/workspace.h"
#include "cpu/elementwise/for_each_row.h"
#include "ops/check_weight.h"
#include "ops/op_scope.h"
#include "quant/codec.h"
#include "tessera/quant.h"

namespace tessera {
namespace {

void decode(Context& ctx, const Weight& weight, const Tensor& out) {
  const Rows rows(out);
  const bool direct = out.dtype == DType::f32;
  Workspace::Frame frame(ctx.workspace());
  auto* scratch = frame.take<float>(direct ? 0 : checked_mul(ctx.threads(), rows.cols()));
  with_float_type(out.dtype, [&](auto type) {
    using T = decltype(type);
    cpu::for_each_row(ctx.pool(), rows.rows(), rows.cols(), [&](std::int64_t row, int worker) {
      float* decoded = direct ? rows.row<float>(row) : scratch + worker * rows.cols();
      quant::decode_row(weight, row, 0, rows.cols(), decoded);
      if (direct) return;
      T* to = rows.row<T>(row);
      for (std::int64_t k = 0; k < rows.cols(); ++k) to[k] = from_float<T>(decoded[k]);
    });
  });
}

}  // namespace

void dequantize(Context& ctx, const Weight& weight, const Tensor& out) {
  const OpScope op(ctx, "dequantize");
  op.require(weight.layout == WeightLayout::published,
             "weight {} is in a kernel's layout; give it in the published layout, as "
             "quantize() made it",
             weight);
  check_weight(op, kWeightNames, weight);
  op.output("out", out, {DType::f32, DType::f16, DType::bf16});
  op.shape("out", out, {weight.out_features, weight.in_features});
  op.no_overlap("out", out, "weight.data", weight.data);
  op.no_overlap("out", out, "weight.scales", weight.scales);
  op.no_overlap("out", out, "weight.zeros", weight.zeros);
  op.run([&] { return "weight " + to_string(weight) + " out " + to_string(out); },
         [&] {
           check_weight_values(op, "weight", weight);
           decode(ctx, weight, out);
           return "cpu";
         },
         [&] {
           // Checking the scales would mean waiting for the device. A scale that is NaN decodes to
           // NaN.
           cuda::dequantize(ctx, weight, out);
           return "cuda";
         },
         [&] {
           return OpCost{weight.bytes() + out.bytes(), out.numel()};
         });
}

}  // namespace tessera
