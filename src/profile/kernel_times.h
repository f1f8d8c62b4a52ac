// From the records of a GPU's kernel timer to the time of each op: pure functions, for records of
// any origin.
//
//   GPU  |== k0 ==|   |==== k1 ====|            a kernel may start before the earlier one ends:
//                          |== k2 ==|    gap    the overlap counts for the earlier one
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
// the order of calls. `spans`: in order of start, each with its op call. Throws if a span
// belongs to no call of the trace: the two runs were not of the same ops.
KernelTimes time_entries(std::span<const TraceEntry> traced, std::span<const std::size_t> order,
                         std::span<const KernelSpan> spans);

// Kernels of captured steps belong to no op call, and a captured step may start before the tokens
// of the one before it are read. So their number and order differ a little from those of the trace.
// `labelled`: the kernels of the traced run, which belong to its calls. The time of all kernels of
// a name goes to the ops that launched those in `labelled`, in proportion to their time there.
// Kernels that `labelled` does not have become an entry of their own, kOtherKernels.
KernelTimes time_entries_by_name(std::span<const TraceEntry> traced,
                                 std::span<const std::size_t> order,
                                 std::span<const KernelSpan> labelled,
                                 std::span<const KernelSpan> spans);

inline constexpr const char* kOtherKernels = "other kernels";

}  // namespace tessera::profile
