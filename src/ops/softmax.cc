#include "tessera/softmax.h"

#include <cmath>

#include "cpu/elementwise/softmax.h"
#include "cuda/elementwise/softmax.h"
#include "ops/op_scope.h"

namespace tessera {

void softmax(Context& ctx, const SoftmaxArgs& args) {
  const OpScope op(ctx, "softmax");
  const Tensor &x = args.x, &out = args.out;
  op.input("x", x, {DType::f32, DType::f16, DType::bf16});
  op.require(std::isfinite(args.scale) && args.scale > 0,
             "scale is {}; it must be positive and finite", args.scale);
  op.output("out", out, {DType::f32, DType::f16, DType::bf16});
  op.same_shape("out", out, "x", x);
  op.no_overlap("out", out, "x", x, /*same_view_is_fine=*/true);

  op.run([&] { return "x " + to_string(x); },
         [&] {
           cpu::softmax(ctx, args);
           return "cpu";
         },
         [&] {
           cuda::softmax(ctx, args);
           return "cuda";
         },
         [&] {
           // Comparison, difference, scale, exponential, total, division.
           return OpCost{x.bytes() + out.bytes(), 6 * x.numel()};
         });
}

}  // namespace tessera
