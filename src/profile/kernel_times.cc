#include "profile/kernel_times.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "core/fail.h"

namespace tessera::profile {

namespace {

// The seconds of each span that no earlier span covers. Returns them for all spans, and adds to
// busy and span seconds.
std::vector<double> own_seconds(std::span<const KernelSpan> spans, KernelTimes& times) {
  std::vector<double> seconds;
  seconds.reserve(spans.size());
  if (spans.empty()) return seconds;
  std::int64_t busy_until = spans.front().start_ns;
  for (const KernelSpan& span : spans) {
    const std::int64_t from = std::max(span.start_ns, busy_until);
    seconds.push_back(1e-9 * static_cast<double>(std::max<std::int64_t>(span.end_ns - from, 0)));
    times.busy_seconds += seconds.back();
    busy_until = std::max(busy_until, span.end_ns);
  }
  times.span_seconds = 1e-9 * static_cast<double>(busy_until - spans.front().start_ns);
  return seconds;
}

std::size_t entry_of(const KernelSpan& span, std::span<const std::size_t> order) {
  if (span.call < 0 || static_cast<std::size_t>(span.call) >= order.size()) {
    fail(ErrorCode::invalid_argument,
         "the kernel {} belongs to op call {} of {}; time and trace runs of the same ops",
         span.name, span.call, order.size());
  }
  return order[static_cast<std::size_t>(span.call)];
}

}  // namespace

KernelTimes time_entries(std::span<const TraceEntry> traced, std::span<const std::size_t> order,
                         std::span<const KernelSpan> spans) {
  KernelTimes result{.entries = {traced.begin(), traced.end()}};
  for (TraceEntry& entry : result.entries) entry.seconds = 0;
  const std::vector<double> seconds = own_seconds(spans, result);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    result.entries[entry_of(spans[i], order)].seconds += seconds[i];
  }
  return result;
}

KernelTimes time_entries_by_name(std::span<const TraceEntry> traced,
                                 std::span<const std::size_t> order,
                                 std::span<const KernelSpan> labelled,
                                 std::span<const KernelSpan> spans) {
  KernelTimes result{.entries = {traced.begin(), traced.end()}};
  for (TraceEntry& entry : result.entries) entry.seconds = 0;
  // Of each kernel: its time in the traced run, of all ops and of each entry.
  struct Kernel {
    double seconds = 0;
    std::map<std::size_t, double> of_entry{};
  };
  std::map<std::string, Kernel, std::less<>> kernels;
  for (const KernelSpan& span : labelled) {
    const double seconds = 1e-9 * static_cast<double>(span.end_ns - span.start_ns);
    Kernel& kernel = kernels[span.name];
    kernel.seconds += seconds;
    kernel.of_entry[entry_of(span, order)] += seconds;
  }
  const std::vector<double> seconds = own_seconds(spans, result);
  TraceEntry other{.op = kOtherKernels, .kernel = "cuda", .shapes = {}};
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const auto found = kernels.find(spans[i].name);
    if (found == kernels.end() || found->second.seconds <= 0) {
      ++other.calls;
      other.seconds += seconds[i];
      continue;
    }
    for (const auto& [entry, part] : found->second.of_entry) {
      result.entries[entry].seconds += seconds[i] * part / found->second.seconds;
    }
  }
  if (other.calls > 0) result.entries.push_back(std::move(other));
  return result;
}

}  // namespace tessera::profile
