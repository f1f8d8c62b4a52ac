// From what a GPU's kernel timer saw to the time of each op: pure functions, for records of any
// origin.
//
//   GPU  |== k0 ==|   |==== k1 ====|            a kernel may start while the one ahead of it ends:
//                          |== k2 ==|    gap    what both share counts for the earlier one
//   ops      a        a         b
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/kernel_span.h"
#include "tessera/trace.h"

namespace tessera::profile {

struct KernelTimes {
  std::vector<TraceEntry> entries;  // those of the trace, with the GPU's time
  double busy_seconds = 0;          // in which at least one kernel ran
  double span_seconds = 0;          // from the first kernel to the end of the last
};

// `traced`: the entries of the same ops, run with tracing. `order`: the entry of each op call, in
// the order of calls. `spans`: in order of start, each with its op call. Throws where a span
// belongs to no call of the trace: the two runs were not of the same ops.
KernelTimes time_entries(std::span<const TraceEntry> traced, std::span<const std::size_t> order,
                         std::span<const KernelSpan> spans);

// Kernels of captured steps belong to no op call. Here they get the calls of the same kernels in
// `labelled`, one step that was not captured: both have the same kernels in the same order. `spans`
// may hold any number of such steps. Throws where the kernels differ.
std::vector<KernelSpan> label_captured(std::vector<KernelSpan> spans,
                                       std::span<const KernelSpan> labelled);

}  // namespace tessera::profile
