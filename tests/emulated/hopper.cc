// The emulated GPU is not a Hopper: its kernels take no call.
#include "cuda/attention/hopper/hopper.h"

#include "cuda/linear/hopper/panels.h"
#include "cuda/linear/hopper/strips.h"
#include "cuda/linear/hopper/wide.h"
#include "cuda/runtime/hopper_kernels.h"

namespace tessera::cuda {

bool has_hopper_kernels(const DeviceLimits&) { return false; }
bool hopper_takes(const AttentionRequest&) { return false; }
AttentionPlan plan_hopper(const AttentionRequest& request) { return AttentionPlan(request); }
void run_hopper(Context&, const AttentionPlan&, Workspace::Frame&) {}

bool panels_take(Context&, const Product&) { return false; }
std::int64_t panels_scratch_bytes(Context&, const Product&, std::int64_t) { return 0; }
void multiply_panels(Context&, const Product&, void*) {}
bool strips_take(Context&, const Product&, std::int64_t) { return false; }
StripPlan strips_plan(Context&, const Product&) { return {}; }
void multiply_strips(Context&, const Product&) {}
bool wide_takes(Context&, const Product&) { return false; }
std::int64_t wide_scratch_bytes(Context&, const Product&, std::int64_t) { return 0; }
void multiply_wide(Context&, const Product&, void*) {}
void multiply_wide_as(Context&, const Product&, const WidePlan&, void*) {}

}  // namespace tessera::cuda
