// The mma.sync kernel for head dims up to 80.
#include "cuda/attention/portable/mma.cuh"

namespace tessera::cuda::mma {

template void launch<Half, 80>(Context&, const AttentionCall&, const TensorCoreOptions&);
template void launch<BFloat16, 80>(Context&, const AttentionCall&, const TensorCoreOptions&);

}  // namespace tessera::cuda::mma
