#include "profile/fusion.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "ops/apart_adds.h"
#include "profile/breakdown.h"

namespace tessera::profile {
namespace {

double seconds_of(const PhaseRun& phase, const char* op) {
  double seconds = 0;
  for (const TraceEntry& entry : phase.entries) seconds += entry.op == op ? entry.seconds : 0;
  return seconds;
}

struct Runs {
  std::vector<EngineRun> fused, apart, traced;  // traced: apart as well
};

// Compares the fastest runs: a fusion gains a few percent, which is less than other load on the
// machine adds to a median.
const PhaseRun& fastest(const std::vector<EngineRun>& runs, PhaseRun EngineRun::*phase) {
  const auto shorter = [phase](const EngineRun& a, const EngineRun& b) {
    return (a.*phase).seconds < (b.*phase).seconds;
  };
  return (*std::min_element(runs.begin(), runs.end(), shorter)).*phase;
}

FusionGain gain_in(const Runs& runs, PhaseRun EngineRun::*phase) {
  const PhaseRun& traced = fastest(runs.traced, phase);
  const double apart = fastest(runs.apart, phase).seconds;
  const double fused = fastest(runs.fused, phase).seconds;
  const double adds = seconds_of(traced, "add");
  return {.apart_ms = 1e3 * apart,
          .fused_ms = 1e3 * fused,
          .add_ms = 1e3 * adds,
          .predicted = gain_of(traced.seconds, adds, 0),
          .measured = fused > 0 ? apart / fused - 1 : 0};
}

}  // namespace

FusionGains measure_fusion(Context& ctx, const Model& model, const EngineRunOptions& options,
                           int repeats) {
  if (!ctx.device().is_cpu() || model.dtype() != DType::f32) {
    fail(ErrorCode::unsupported,
         "--fusion-gain compares bias and residual in the epilogue with adds of their own, on the "
         "CPU "
         "in f32; the model runs on {} in {}",
         to_string(ctx.device()), name(model.dtype()));
  }
  EngineRunner fused(ctx, model, options);
  std::optional<ApartAdds> adds(std::in_place);  // the engine reserves what the adds need
  EngineRunner apart(ctx, model, options);
  adds.reset();
  Runs runs;
  for (int i = -1; i < repeats; ++i) {  // the first is a warm-up
    const EngineRun one = fused.run(false);
    adds.emplace();
    const EngineRun other = apart.run(false), traced = apart.run(true);
    adds.reset();
    if (i < 0) continue;
    runs.fused.push_back(one);
    runs.apart.push_back(other);
    runs.traced.push_back(traced);
  }
  return {.prefill = gain_in(runs, &EngineRun::prefill),
          .decode = gain_in(runs, &EngineRun::decode)};
}

}  // namespace tessera::profile
