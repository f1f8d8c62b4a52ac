// layer_norm() and rms_norm() against the float64 twin; residual sums bit for bit.
#include <algorithm>

#include "random/ops.h"
#include "support/compare.h"
#include "support/norm_case.h"

namespace tessera::test {

void random_norm(Trial& trial) {
  Draws& draws = trial.draws;
  NormCase c;
  c.kind = kNormKinds[draws.word("kind", {"layer", "rms"})];
  const std::int64_t width = draws.size("width", 1, 9000);
  const std::int64_t rows =
      draws.size("rows", 1, std::clamp<std::int64_t>(trial.work / 8 / width, 1, 700));
  c.shape = {rows, width};
  c.dtype = draws.dtype("dtype", kFloats);
  c.weight_dtype = draws.dtype("weight_dtype", kFloats);
  c.layout = draws.layout("layout");
  c.residuals = static_cast<int>(draws.between("residuals", 0, 3));
  c.bias = draws.chance("bias", 50);
  c.seed = draws.seed("seed");
  if (c.residuals > 0) c.dropout.p = static_cast<float>(draws.real("dropout", {0.0, 0.0, 0.3}));
  if (c.dropout.p > 0) c.dropout.seed = draws.seed("dropout_seed");
  const bool fixed = draws.chance("fixed_rows", 30);

  trial.begin("any");
  NormCall call(trial.ctx, c), again(trial.others, c);
  call.args.fixed_rows = again.args.fixed_rows = fixed;
  run_norm(trial.ctx, c.kind, call.args);
  trial.expect(accurate_norm(call.out.read(), call.expected_out(c.kind, c.dtype), c.dtype), "out");
  trial.expect(call.out.surroundings_intact() && call.sum.surroundings_intact(),
               "something around an output was written");
  if (c.residuals > 0) {
    trial.expect(identical(call.sum.read(), call.expected_sum(c.dtype)), "sum");
  }
  run_norm(trial.others, c.kind, again.args);
  trial.expect(identical(call.out.read(), again.out.read()), "other bits the second time");
}

}  // namespace tessera::test
