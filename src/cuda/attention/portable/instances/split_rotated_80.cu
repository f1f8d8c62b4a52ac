// The split kernel for keys rotated as they are read and head dims up to 80.
#include "cuda/attention/portable/split_rotated.cuh"

namespace tessera::cuda::split {

template void launch_rotated<Half, 80>(Context&, const AttentionCall&, const TensorCoreOptions&,
                                       const Partials&);
template void launch_rotated<BFloat16, 80>(Context&, const AttentionCall&, const TensorCoreOptions&,
                                           const Partials&);

}  // namespace tessera::cuda::split
