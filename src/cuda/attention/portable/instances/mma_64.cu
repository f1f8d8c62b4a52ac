// The mma.sync kernel for head dims up to 64.
#include "cuda/attention/portable/mma.cuh"

namespace tessera::cuda::mma {

template void launch<Half, 64>(Context&, const AttentionCall&, const TensorCoreOptions&);
template void launch<BFloat16, 64>(Context&, const AttentionCall&, const TensorCoreOptions&);

}  // namespace tessera::cuda::mma
