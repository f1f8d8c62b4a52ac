#include "cuda/attention/backward/hopper/launch.cuh"

namespace tessera::cuda::backward {

template void launch_hopper<Half, 128>(const Launch&, const HopperGradients&);
template void launch_hopper<BFloat16, 128>(const Launch&, const HopperGradients&);

}  // namespace tessera::cuda::backward
