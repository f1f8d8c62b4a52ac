// The emulated GPU is no Hopper.
#include "cuda/attention/hopper/hopper.h"

#include "cuda/linear/hopper/panels.h"
#include "cuda/linear/hopper/strips.h"
#include "cuda/linear/hopper/wide.h"
#include "cuda/runtime/hopper_kernels.h"

namespace tessera::cuda {

bool has_hopper_kernels(const DeviceLimits&) { return false; }
bool hopper_takes(const DeviceLimits&, const AttentionArgs&) { return false; }
void launch_hopper(Context&, const AttentionCall&) {}

bool takes_strips(const LinearCall&) { return false; }
StripPlan plan_strips(const LinearCall&) { return {}; }
void run_strips(const LinearCall&, const StripPlan&) {}
bool takes_panels(const LinearCall&) { return false; }
PanelPlan plan_panels(const LinearCall&) { return {}; }
void run_panels(const LinearCall&, const PanelPlan&, void*) {}
bool takes_wide(const LinearCall&) { return false; }
WidePlan plan_wide(const LinearCall&) { return {}; }
void run_wide(const LinearCall&, const WidePlan&, void*) {}

}  // namespace tessera::cuda
