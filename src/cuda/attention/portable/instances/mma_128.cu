// The mma.sync kernel for head dims up to 128.
#include "cuda/attention/portable/mma.cuh"

namespace tessera::cuda::mma {

template void launch<Half, 128>(Context&, const AttentionCall&, const TensorCoreOptions&);
template void launch<BFloat16, 128>(Context&, const AttentionCall&, const TensorCoreOptions&);

}  // namespace tessera::cuda::mma
