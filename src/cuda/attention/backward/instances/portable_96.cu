#include "cuda/attention/backward/portable.cuh"

namespace tessera::cuda::backward {

template void launch_portable<Half, 96>(Context&, const AttentionCall&, const PortableGradients&);
template void launch_portable<BFloat16, 96>(Context&, const AttentionCall&,
                                            const PortableGradients&);

}  // namespace tessera::cuda::backward
