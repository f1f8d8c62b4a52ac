// Counts which ops ran, how often and on which kernels. This shows whether residuals, activations
// and heads are fused into the calls that should have them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "model/architectures/registry.h"
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

// Counts the calls of one op, or of all ops if none is named.
std::int64_t count(const std::vector<TraceEntry>& entries, std::string_view op = {}) {
  std::int64_t calls = 0;
  for (const TraceEntry& entry : entries) {
    if (op.empty() || entry.op == op) calls += entry.calls;
  }
  return calls;
}

std::vector<std::string> kernels_of(const std::vector<TraceEntry>& entries, std::string_view op) {
  std::vector<std::string> kernels;
  for (const TraceEntry& entry : entries) {
    const bool seen = std::find(kernels.begin(), kernels.end(), entry.kernel) != kernels.end();
    if (entry.op == op && !seen) kernels.push_back(entry.kernel);
  }
  return kernels;
}

}  // namespace

VerifyCheck verify_calls(const VerifySubject& subject) {
  // Two runs differ by exactly one decoding step.
  const std::vector<TraceEntry> before = calls_of(subject, 1), after = calls_of(subject, 2);
  const std::int64_t total = count(after) - count(before);
  VerifyCheck check{.name = "fused calls", .verdict = {}};
  std::int64_t known = 0;
  const ModelConfig& config = subject.model.config();
  const bool fused = count(after, "decode_layers") > 0;
  for (const model::StepCalls& op :
       model::find_architecture(config).promised_calls(config, fused)) {
    const std::int64_t calls = count(after, op.op) - count(before, op.op);
    known += calls;
    check.rows.push_back({.what = op.op,
                          .text = fmt::format("{} of {} calls: {} ({})", calls, op.calls, op.what,
                                              fmt::join(kernels_of(after, op.op), ", ")),
                          .ok = calls == op.calls});
  }
  check.rows.push_back({.what = "others",
                        .text = fmt::format("{} calls of other ops", total - known),
                        .ok = total == known});
  check.verdict = fmt::format("{} op calls per decoded token", total);
  return check;
}

std::vector<TraceEntry> call_trace(const VerifySubject& subject) { return calls_of(subject, 2); }

}  // namespace tessera::app
