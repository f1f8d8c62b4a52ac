#include "cuda/attention/backward/portable.cuh"

namespace tessera::cuda::backward {

template void launch_portable<Half, 64>(Context&, const AttentionCall&, const PortableGradients&);
template void launch_portable<BFloat16, 64>(Context&, const AttentionCall&,
                                            const PortableGradients&);

}  // namespace tessera::cuda::backward
