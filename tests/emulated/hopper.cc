// The emulated GPU is no Hopper.
#include "cuda/attention/hopper.h"

namespace tessera::cuda {

bool has_hopper_kernels(const DeviceLimits&) { return false; }
bool hopper_takes(const DeviceLimits&, const AttentionArgs&) { return false; }
void launch_hopper(Context&, const AttentionCall&) {}

}  // namespace tessera::cuda
