// The dense kernel for head dims from 88 to 96.
#include "cuda/attention/portable/dense_launch.cuh"

namespace tessera::cuda::dense {

template void launch<Half, 96>(Context&, const AttentionCall&);
template void launch<BFloat16, 96>(Context&, const AttentionCall&);

}  // namespace tessera::cuda::dense
