#include "profile/kernel_times.h"

#include <algorithm>

#include "core/fail.h"

namespace tessera::profile {

KernelTimes time_entries(std::span<const TraceEntry> traced, std::span<const std::size_t> order,
                         std::span<const KernelSpan> spans) {
  KernelTimes result{.entries = {traced.begin(), traced.end()}};
  for (TraceEntry& entry : result.entries) entry.seconds = 0;
  if (spans.empty()) return result;
  std::int64_t busy_until = spans.front().start_ns;
  for (const KernelSpan& span : spans) {
    if (span.call < 0 || static_cast<std::size_t>(span.call) >= order.size()) {
      fail(ErrorCode::invalid_argument,
           "the kernel {} belongs to op call {} of {}; time and trace runs of the same ops",
           span.name, span.call, order.size());
    }
    const std::int64_t from = std::max(span.start_ns, busy_until);
    const double seconds =
        1e-9 * static_cast<double>(std::max<std::int64_t>(span.end_ns - from, 0));
    result.entries[order[static_cast<std::size_t>(span.call)]].seconds += seconds;
    result.busy_seconds += seconds;
    busy_until = std::max(busy_until, span.end_ns);
  }
  result.span_seconds = 1e-9 * static_cast<double>(busy_until - spans.front().start_ns);
  return result;
}

std::vector<KernelSpan> label_captured(std::vector<KernelSpan> spans,
                                       std::span<const KernelSpan> labelled) {
  if (labelled.empty() || spans.size() % labelled.size() != 0) {
    fail(ErrorCode::invalid_argument,
         "{} kernels ran in captured steps, which is no multiple of the {} of a step", spans.size(),
         labelled.size());
  }
  std::int64_t calls = 0;  // of a step
  for (const KernelSpan& span : labelled) calls = std::max(calls, span.call + 1);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const KernelSpan& same = labelled[i % labelled.size()];
    if (spans[i].name != same.name) {
      fail(ErrorCode::invalid_argument,
           "kernel {} of the captured steps is {}, where a step has {}", i, spans[i].name,
           same.name);
    }
    spans[i].call = same.call + calls * static_cast<std::int64_t>(i / labelled.size());
  }
  return spans;
}

}  // namespace tessera::profile
