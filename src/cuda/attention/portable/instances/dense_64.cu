// The dense kernel for head dims up to 64.
#include "cuda/attention/portable/dense_launch.cuh"

namespace tessera::cuda::dense {

template void launch<Half, 64>(Context&, const AttentionCall&);
template void launch<BFloat16, 64>(Context&, const AttentionCall&);

}  // namespace tessera::cuda::dense
