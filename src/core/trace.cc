#include "tessera/trace.h"

#include <utility>

namespace tessera {

std::int64_t Trace::calls(std::string_view op, std::string_view kernel) const {
  std::int64_t count = 0;
  for (const TraceEntry& entry : entries_) {
    if (entry.op == op && (kernel.empty() || entry.kernel == kernel)) count += entry.calls;
  }
  return count;
}

void Trace::record(TraceEntry call) {
  if (separate_layers_) call.layer = layer_;
  for (TraceEntry& entry : entries_) {
    if (entry.op == call.op && entry.kernel == call.kernel && entry.shapes == call.shapes &&
        entry.layer == call.layer) {
      entry.calls += call.calls;
      entry.seconds += call.seconds;
      entry.bytes += call.bytes;
      entry.flops += call.flops;
      return;
    }
  }
  entries_.push_back(std::move(call));
}

}  // namespace tessera
