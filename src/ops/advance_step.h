// Turns the small tensors of a decode step (tessera/cache_batch.h) into those of the next step, and
// advances its draws: src/core/step_row.h has the rules. A GPU that replays its steps runs this at
// the end of each, so that the host need not write the next one.
//
// Threads: any. A call has its Context to itself (tessera/context.h).
#pragma once

#include "tessera/context.h"
#include "tessera/sample_rows.h"
#include "tessera/tensor.h"

namespace tessera {

// Ids that go to the host at the end of a step. They go to two places in turn, so that the host may
// read those of the previous step meanwhile.
struct IdRing {
  Tensor ids{};                  // i32 [n]
  Tensor turn{};                 // i64 [1]: how often the ring was used; the last bit is the place
  std::int32_t* places[2] = {};  // memory of the host that the device can write: n numbers each
};

struct AdvanceStepArgs {
  Tensor rows{};       // i64 [rows, kStepRowWords]: a StepRow each
  Tensor positions{};  // i64 [rows]
  Tensor slots{};      // i32 [rows]
  Tensor block{};      // i32 [words]: all tensors of the step, to which rows refer by places
  // i64 [draws, kDrawOptionsWords], optional: a DrawOptions each.
  Tensor draws{};
  IdRing ring{};  // optional: not used without ids
  // True: no work that may still run writes rows, draws, pages or the turn. This holds in a step
  // that began after the last call and its uploads. A GPU then reads them while earlier kernels
  // still run.
  bool settled = false;
};
// The contents of the rows are not checked, because they are in the device's memory.
void advance_step(Context& ctx, const AdvanceStepArgs& args);

}  // namespace tessera
