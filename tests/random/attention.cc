// attention(): every kernel of a GPU against the CPU in f32, and the CPU against the float64 twin.
#include <cmath>

#include "random/by_kernel.h"
#include "random/drawn_attention.h"
#include "random/ops.h"
#include "support/compare.h"

namespace tessera::test {
namespace {

struct ExactAttention {
  Array out, lse;
  Array magnitude;  // the output for the values' magnitudes: the sum of weight x |value|
};

Array magnitudes(Array x) {
  for (double& value : x.data) value = std::abs(value);
  return x;
}

ExactAttention exact_attention(const DrawnAttention& call, bool by_twin) {
  DrawnAttention positive = call.in_f32();
  positive.in.v = magnitudes(positive.in.v);
  if (by_twin) {
    reference::AttentionResult result = reference::attention(call.in);
    return {std::move(result.out), std::move(result.lse), reference::attention(positive.in).out};
  }
  Context cpu;
  AttentionOnDevice exact(cpu, call.in_f32()), of_magnitudes(cpu, positive);
  attention(cpu, exact.args);
  attention(cpu, of_magnitudes.args);
  return {exact.out.read(), exact.lse.read(), of_magnitudes.out.read()};
}

Array lse_bound(const DrawnAttention& call, const Array& exact) {
  const double error = 4e-6 + weight_error(call, false);
  Array bound = exact;
  for (double& x : bound.data) x = std::isinf(x) ? 1e-30 : error + 2e-6 * std::abs(x);
  return bound;
}

}  // namespace

void random_attention(Trial& trial) {
  const std::int64_t work = trial.on_cpu() ? trial.work : 8 * trial.work;  // the twin is slow
  const DrawnAttention call =
      draw_attention(trial.draws, trial.on_cpu(), work, AttentionUse::inference);
  trial.begin("exact");
  const ExactAttention exact = exact_attention(call, trial.on_cpu());
  const bool rounds = !trial.on_cpu() && call.dtype != DType::f32;
  const Array of_out = out_bound(call, exact.out, exact.magnitude, rounds),
              of_lse = lse_bound(call, exact.lse);
  const AttentionOnDevice any(trial.ctx, call);
  for (const std::string& kernel : attention_kernel_names(trial.ctx, any.args)) {
    trial.begin(kernel);
    const AttentionOnDevice run(trial.ctx, call), again(trial.others, call);
    attention_by(trial.ctx, kernel, run.args);
    trial.expect_within(run.out.read(), exact.out, of_out, "out");
    if (call.lse) trial.expect_within(run.lse.read(), exact.lse, of_lse, "lse");
    trial.expect(run.inputs_untouched(), "an input was written");
    trial.expect(run.surroundings_intact(), "something around an output was written");
    attention_by(trial.others, kernel, again.args);
    trial.expect(identical(run.out.read(), again.out.read()), "other bits the second time");
  }
}

}  // namespace tessera::test
