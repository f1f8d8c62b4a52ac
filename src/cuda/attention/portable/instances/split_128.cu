// The split kernel for head dims up to 128.
#include "cuda/attention/portable/split.cuh"

namespace tessera::cuda::split {

template void launch<Half, 128>(Context&, const AttentionCall&, const TensorCoreOptions&,
                                const Partials&, const NewTokens*);
template void launch<BFloat16, 128>(Context&, const AttentionCall&, const TensorCoreOptions&,
                                    const Partials&, const NewTokens*);

}  // namespace tessera::cuda::split
