// The emulated GPU is not a Hopper: its kernels take no call.
#include "cuda/attention/hopper/hopper.h"

#include "cuda/attention/backward/hopper/hopper.h"
#include "cuda/attention/hopper/decode/decode.h"
#include "cuda/linear/hopper/panels.h"
#include "cuda/linear/hopper/strips.h"
#include "cuda/linear/hopper/wide.h"
#include "cuda/runtime/hopper_kernels.h"
#include "cuda/sampling/hopper/draw_whole.h"

namespace tessera::cuda {

bool has_hopper_kernels(const DeviceLimits&) { return false; }
bool hopper_takes(const AttentionRequest&) { return false; }
bool hopper_pays(const AttentionRequest&) { return false; }
AttentionPlan plan_hopper(const AttentionRequest& request) { return AttentionPlan(request); }
void run_hopper(Context&, const AttentionPlan&, Workspace::Frame&) {}

namespace hopper_decode {
bool takes(const AttentionRequest&) { return false; }
bool pays(const AttentionRequest&) { return false; }
AttentionPlan plan(const AttentionRequest& request) { return AttentionPlan(request); }
std::int64_t scratch(const AttentionPlan&) { return 0; }
void run(Context&, const AttentionPlan&, Workspace::Frame&) {}
}  // namespace hopper_decode

namespace backward {
bool hopper_takes(const BackwardRequest&) { return false; }
void run_hopper(Context&, const BackwardRequest&, Workspace::Frame&) {}
}  // namespace backward

bool takes_whole_draw(Context&, std::int64_t, std::int64_t) { return false; }
void launch_whole_draw(Context&, const SampleArgs&) {}
void launch_whole_draw(Context&, const SampleRowsArgs&) {}

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
