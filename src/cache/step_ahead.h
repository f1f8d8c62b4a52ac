// The small tensors of the next decode step, made where they are. A pass that ends with
// advance_step() leaves them on the device as the next step needs them, if that step takes the next
// token of the same streams and no page comes from the pool. The host does the same to a copy:
//
//   device   | pass t | advance | pass t+1 | advance |
//   host       begin(t)   advanced()   begin(t+1): writes step t+1; equal to the copy? no upload
//
// So nothing else decides whether a step must be uploaded, and a device never runs a step that the
// host would have written differently.
#pragma once

#include <cstdint>
#include <vector>

#include "core/step_row.h"
#include "ops/advance_step.h"
#include "tessera/cache_batch.h"

namespace tessera {

class StepAhead {
 public:
  explicit StepAhead(std::int64_t bytes) : copy_(static_cast<std::size_t>(bytes)) {}

  // A step was written to its host block, which has `bytes` bytes. Returns whether they are on the
  // device already.
  bool begin(const CacheStep& step, std::int64_t bytes);
  // What advances the step.
  AdvanceStepArgs args() const;
  // The step's pass was enqueued, with advance_step() at its end.
  void advanced();

 private:
  const CacheStep* step_ = nullptr;
  std::int64_t bytes_ = 0;
  std::vector<char> copy_;  // what the device has at its end, if it has been advanced
  bool is_advanced_ = false;
};

}  // namespace tessera
