// Counts which ops ran, how often and on which kernels. This shows whether residuals, activations
// and heads are fused into the calls that should have them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string>

#include "model/architectures/registry.h"
#include "profile/step_count.h"
#include "reference/parity.h"
#include "verify.h"

namespace tessera::app {
namespace {

// The calls made while generating this many tokens.
std::vector<TraceEntry> calls_of(const VerifySubject& subject, std::int64_t tokens) {
  Trace& trace = subject.ctx.trace();
  trace.clear();
  trace.enable();
  reference::generate_greedy(subject.ctx, subject.model, fixed_prompt(subject.model.config()),
                             tokens);
  trace.enable(false);
  std::vector<TraceEntry> entries = trace.entries();
  trace.clear();
  return entries;
}

// What the model plans for the step after the prompt, in a cache as generate_greedy() makes it. The
// trace cannot tell: the check must find a fused kernel that does not run.
bool plans_to_fuse(const VerifySubject& subject, std::int64_t tokens) {
  KvCache cache = subject.model.make_cache(subject.ctx, CachePolicy::full(), kPromptTokens + tokens,
                                           kPromptTokens, /*logit_rows=*/1, subject.model.dtype());
  cache.skip(kPromptTokens);
  return subject.model.fuses_layers(subject.ctx, cache.step(subject.ctx, std::array{0}));
}

}  // namespace

VerifyCheck verify_calls(const VerifySubject& subject) {
  // Two runs differ by exactly one decoding step.
  const std::vector<TraceEntry> before = calls_of(subject, 1), after = calls_of(subject, 2);
  VerifyCheck check{.name = "fused calls", .verdict = {}};
  const ModelConfig& config = subject.model.config();
  const profile::StepCount count = profile::count_step(
      model::find_architecture(config).promised_calls(
          config, model::step_kind(1, {.layers = plans_to_fuse(subject, 2),
                                       .embedding = subject.model.fuses_embedding()})),
      before, after);
  for (const profile::OpCount& op : count.ops) {
    check.rows.push_back(
        {.what = op.promised.op,
         .text = fmt::format("{} of {} calls: {} ({})", op.calls, op.promised.calls,
                             op.promised.what, fmt::join(op.kernels, ", ")),
         .ok = op.is_kept()});
  }
  check.rows.push_back({.what = "others",
                        .text = fmt::format("{} calls of other ops", count.others),
                        .ok = count.others == 0});
  check.verdict = fmt::format("{} op calls per decoded token", count.total);
  return check;
}

std::vector<TraceEntry> call_trace(const VerifySubject& subject) { return calls_of(subject, 2); }

}  // namespace tessera::app
