// The calls of one step, compared with what its architecture promises: a pure function of two
// traces.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/architectures/registry.h"
#include "tessera/trace.h"

namespace tessera::profile {

struct OpCount {
  model::StepCalls promised{};
  std::int64_t calls = 0;
  std::vector<std::string> kernels{};  // in both traces
  bool is_kept() const { return calls == promised.calls; }
};

struct StepCount {
  std::vector<OpCount> ops{};
  std::int64_t total = 0, others = 0;  // calls of all ops, and of ops that were not promised
};

// The step is the difference of `after` and `before`.
StepCount count_step(std::span<const model::StepCalls> promised, std::span<const TraceEntry> before,
                     std::span<const TraceEntry> after);

}  // namespace tessera::profile
