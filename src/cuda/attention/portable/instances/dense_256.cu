// The dense kernel for head dims from 136 to 256.
#include "cuda/attention/portable/dense_launch.cuh"

namespace tessera::cuda::dense {

template void launch<Half, 256>(Context&, const AttentionCall&);
template void launch<BFloat16, 256>(Context&, const AttentionCall&);

}  // namespace tessera::cuda::dense
