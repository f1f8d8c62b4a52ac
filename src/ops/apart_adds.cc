#include "ops/apart_adds.h"

#include <utility>

#include "core/rows.h"
#include "core/thread_pool.h"
#include "core/type_switch.h"
#include "core/workspace.h"
#include "ops/op_scope.h"

namespace tessera {
namespace {

// Models call linear() through many layers that need not know of an experiment.
thread_local bool t_adds_are_apart = false;

// sums + bias + residual, in the order of the fused epilogue.
void add_rows(Context& ctx, const Tensor& sums, const float* bias, const LinearArgs& args) {
  const Rows from(sums), residual(args.residual), to(args.out);
  ctx.pool().parallel_for(from.rows(), [&](std::int64_t i, int) {
    const auto* product = from.row<const float>(i);
    const auto* added = args.residual.defined() ? residual.row<const float>(i) : nullptr;
    auto* out = to.row<float>(i);
    for (std::int64_t n = 0; n < from.cols(); ++n) {
      const float sum = bias != nullptr ? product[n] + bias[n] : product[n];
      out[n] = added != nullptr ? sum + added[n] : sum;
    }
  });
}

// Null if there is none.
const float* bias_in_f32(const Tensor& bias, float* scratch) {
  if (!bias.defined()) return nullptr;
  with_float_type(bias.dtype, [&](auto type) {
    const auto* from = bias.ptr<const decltype(type)>();
    for (std::int64_t n = 0; n < bias.numel(); ++n) scratch[n] = to_float(from[n]);
  });
  return scratch;
}

}  // namespace

ApartAdds::ApartAdds() : before_(std::exchange(t_adds_are_apart, true)) {}
ApartAdds::~ApartAdds() { t_adds_are_apart = before_; }

bool has_apart_adds(const Context& ctx, const LinearArgs& args) {
  return t_adds_are_apart && ctx.device().is_cpu() && args.out.dtype == DType::f32 &&
         args.out.rank == 2 && args.activation == Activation::none &&
         (args.bias.defined() || args.residual.defined());
}

void linear_with_apart_adds(Context& ctx, const LinearArgs& args) {
  Workspace::Frame frame(ctx.workspace());
  LinearArgs plain = args;
  plain.bias = plain.residual = Tensor();
  plain.out = frame.take(DType::f32, {args.out.size(0), args.out.size(1)});
  auto* scratch = frame.take<float>(args.out.size(1));
  linear(ctx, plain);
  const OpScope op(ctx, "add");
  op.output("out", args.out, {DType::f32});
  if (args.bias.defined()) {
    op.input("bias", args.bias, {DType::f32, DType::f16, DType::bf16});
    op.shape("bias", args.bias, {args.out.size(1)});
  }
  if (args.residual.defined()) {
    op.input("residual", args.residual, {DType::f32});
    op.same_shape("residual", args.residual, "out", args.out);
  }
  if (ctx.workspace().is_counting()) return;
  op.run([&] { return "out " + to_string(args.out); },
         [&] {
           add_rows(ctx, plain.out, bias_in_f32(args.bias, scratch), args);
           return "cpu.apart";
         },
         [&] {
           const int terms = args.bias.defined() + args.residual.defined();
           return OpCost{2 * args.out.bytes() + args.bias.bytes() + args.residual.bytes(),
                         terms * args.out.numel()};
         });
}

}  // namespace tessera
