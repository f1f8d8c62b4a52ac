// The split kernel for codes and head dims up to 128.
#include "cuda/attention/portable/split_codes.cuh"

namespace tessera::cuda::split {

template void launch_codes<Half, 128>(Context&, const AttentionCall&, const TensorCoreOptions&,
                                      const Partials&);
template void launch_codes<BFloat16, 128>(Context&, const AttentionCall&, const TensorCoreOptions&,
                                          const Partials&);

}  // namespace tessera::cuda::split
