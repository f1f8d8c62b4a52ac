// The small tensors of a decode step (tessera/cache_batch.h) become those of the step after it, and
// its draws count on: src/core/step_row.h has the rules. A GPU that replays its steps runs this at
// the end of each, so that the host need not write the next one.
//
// Threads: any. A call has its Context to itself (tessera/context.h).
#pragma once

#include "tessera/context.h"
#include "tessera/sample_rows.h"
#include "tessera/tensor.h"

namespace tessera {

// Ids that leave for the host at the end of a step: into one of two places in turn, so that the
// host may read those of the step before meanwhile.
struct IdRing {
  Tensor ids{};                  // i32 [n]
  Tensor turn{};                 // i64 [1]: how often it has been used; the place is its last bit
  std::int32_t* places[2] = {};  // memory of the host that the device can write: n numbers each
};

struct AdvanceStepArgs {
  Tensor rows{};       // i64 [rows, kStepRowWords]: a StepRow each
  Tensor positions{};  // i64 [rows]
  Tensor slots{};      // i32 [rows]
  Tensor block{};      // i32 [words]: all tensors of the step, to which rows refer by places
  // i64 [draws, kDrawOptionsWords], optional: a DrawOptions each.
  Tensor draws{};
  IdRing ring{};  // optional: without ids there is none
  // Nothing that may still run writes rows, draws, pages or the turn, as in a step that began
  // behind the last call and its uploads. A GPU then reads them while the kernels ahead still run.
  bool settled = false;
};
// What the rows refer to is not checked: it is in the device's memory.
void advance_step(Context& ctx, const AdvanceStepArgs& args);

}  // namespace tessera
