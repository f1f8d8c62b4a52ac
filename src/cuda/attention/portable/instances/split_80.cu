// The split kernel for head dims up to 80.
#include "cuda/attention/portable/split.cuh"

namespace tessera::cuda::split {

template void launch<Half, 80>(Context&, const AttentionCall&, const TensorCoreOptions&,
                               const Partials&, const NewTokens*);
template void launch<BFloat16, 80>(Context&, const AttentionCall&, const TensorCoreOptions&,
                                   const Partials&, const NewTokens*);

}  // namespace tessera::cuda::split
