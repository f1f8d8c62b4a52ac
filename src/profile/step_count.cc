#include "profile/step_count.h"

#include <algorithm>
#include <string_view>

namespace tessera::profile {
namespace {

// Counts the calls of one op, or of all ops if none is named.
std::int64_t calls_of(std::span<const TraceEntry> entries, std::string_view op = {}) {
  std::int64_t calls = 0;
  for (const TraceEntry& entry : entries) {
    if (op.empty() || entry.op == op) calls += entry.calls;
  }
  return calls;
}

std::vector<std::string> kernels_of(std::span<const TraceEntry> entries, std::string_view op) {
  std::vector<std::string> kernels;
  for (const TraceEntry& entry : entries) {
    const bool seen = std::find(kernels.begin(), kernels.end(), entry.kernel) != kernels.end();
    if (entry.op == op && !seen) kernels.push_back(entry.kernel);
  }
  return kernels;
}

}  // namespace

StepCount count_step(std::span<const model::StepCalls> promised, std::span<const TraceEntry> before,
                     std::span<const TraceEntry> after) {
  StepCount count;
  count.total = count.others = calls_of(after) - calls_of(before);
  for (const model::StepCalls& op : promised) {
    const std::int64_t calls = calls_of(after, op.op) - calls_of(before, op.op);
    count.others -= calls;
    count.ops.push_back({.promised = op, .calls = calls, .kernels = kernels_of(after, op.op)});
  }
  return count;
}

}  // namespace tessera::profile
