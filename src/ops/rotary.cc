#include "tessera/rotary.h"

#include <cmath>

#include "cpu/elementwise/rotary.h"
#include "cuda/rotary/rotary.h"
#include "ops/op_scope.h"
#include "ops/rotary_args.h"

namespace tessera {
namespace {

void check_rotary(const OpScope& op, const RotaryArgs& args) {
  const Tensor &x = args.x, &positions = args.positions, &inv_freq = args.rope.inv_freq;
  op.input("x", x, {DType::f32, DType::f16, DType::bf16});
  op.shape("x", x, {-1, -1, -1, -1});
  op.input("positions", positions, {DType::i32, DType::i64});
  if (positions.rank == 1) {
    op.shape("positions", positions, {x.shape[1]});
  } else {
    op.shape("positions", positions, {x.shape[0], x.shape[1]});
  }
  check_rope(op, args.rope, "x", x);
  op.output("out", args.out, {x.dtype});
  op.same_shape("out", args.out, "x", x);
  op.no_overlap("out", args.out, "x", x, /*same_view_is_fine=*/true);
  op.no_overlap("out", args.out, "positions", positions);
  op.no_overlap("out", args.out, "rope.inv_freq", inv_freq);
}

// Rotary needs no scratch on a GPU.
std::int64_t rotary_scratch_bytes(Context& ctx, const RotaryArgs& args) {
  return ctx.device().is_cpu() ? cpu::rotary_scratch_bytes(ctx, args) : 0;
}

}  // namespace

std::vector<float> rope_inv_freq(std::int64_t dims, double theta) {
  if (dims <= 0 || dims % 2 != 0) {
    fail(ErrorCode::invalid_argument,
         "rope_inv_freq: dims is {}; it must be even and positive, two for each pair", dims);
  }
  if (!std::isfinite(theta) || theta <= 0) {
    fail(ErrorCode::invalid_argument, "rope_inv_freq: theta is {}; it must be a positive number",
         theta);
  }
  std::vector<float> inv_freq;
  inv_freq.reserve(static_cast<std::size_t>(dims / 2));
  for (std::int64_t i = 0; i < dims / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(dims);
    inv_freq.push_back(static_cast<float>(std::pow(theta, exponent)));
  }
  return inv_freq;
}

void rotary(Context& ctx, const RotaryArgs& args) {
  const OpScope op(ctx, "rotary");
  check_rotary(op, args);
  if (op.only_counts([&] { return rotary_scratch_bytes(ctx, args); })) return;
  const Tensor& x = args.x;
  op.run([&] { return "x " + to_string(x) + " positions " + to_string(args.positions); },
         [&] {
           check_positions(op, args.positions);
           cpu::rotary(ctx, args);
           return "cpu";
         },
         [&] {
           cuda::rotary(ctx, args);
           return "cuda";
         },
         [&] {
           const std::int64_t heads = x.shape[0] * x.shape[1] * x.shape[2];
           return OpCost{2 * x.bytes() + args.positions.bytes() + args.rope.inv_freq.bytes(),
                         3 * heads * args.rope.dims()};  // two products and a sum for each element
         });
}

}  // namespace tessera
