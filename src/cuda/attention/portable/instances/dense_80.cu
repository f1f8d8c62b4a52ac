// The dense kernel for head dims from 72 to 80.
#include "cuda/attention/portable/dense_launch.cuh"

namespace tessera::cuda::dense {

template void launch<Half, 80>(Context&, const AttentionCall&);
template void launch<BFloat16, 80>(Context&, const AttentionCall&);

}  // namespace tessera::cuda::dense
