// The next token of every row of a decode step, on a GPU (core/step_row.h). src/ops/advance_step.cc
// has checked the arguments.
#pragma once

#include <cstdint>

#include "core/step_row.h"
#include "tessera/context.h"
#include "tessera/sample_rows.h"

namespace tessera::cuda {

struct AdvanceStepCall {
  StepRow* rows;
  std::int64_t row_count;
  StepRowTensors tensors;
  DrawOptions* draws;
  std::int64_t draw_count;
  const std::int32_t* ids;  // of AdvanceStepArgs::ring, or null
  std::int64_t id_count;
  std::int64_t* turn;
  std::int32_t* places[2];
  bool settled;  // AdvanceStepArgs::settled
};
void advance_step(Context& ctx, const AdvanceStepCall& call);

}  // namespace tessera::cuda
