#include "cuda/attention/hopper/launch.cuh"

namespace tessera::cuda {

template void launch_hopper_kernel<Half, 80>(const Launch&, const HopperCall&, HopperMask, int);
template void launch_hopper_kernel<BFloat16, 80>(const Launch&, const HopperCall&, HopperMask, int);

}  // namespace tessera::cuda
