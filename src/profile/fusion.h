// Whether a fusion gains what the profile of the model without it predicts. The fusion is that of
// bias and residual into the epilogue of linear(), compared with adds of their own.
#pragma once

#include "profile/engine_run.h"

namespace tessera::profile {

struct FusionGain {
  double apart_ms = 0, fused_ms = 0;  // of the phase, tracing off: of the fastest run
  double add_ms = 0;                  // of the adds when they are apart, by the trace
  double predicted = 0;               // by Amdahl's law, if the adds took no time
  double measured = 0;

  // 1: the prediction was exact.
  double agreement() const { return measured != 0 ? predicted / measured : 0; }
};

struct FusionGains {
  FusionGain prefill, decode;
};

// Runs both in turns, so that other load on the machine affects both alike. On the CPU, in f32.
FusionGains measure_fusion(Context& ctx, const Model& model, const EngineRunOptions& options,
                           int repeats);

}  // namespace tessera::profile
