// The dense kernel for head dims from 104 to 128.
#include "cuda/attention/portable/dense_launch.cuh"

namespace tessera::cuda::dense {

template void launch<Half, 128>(Context&, const AttentionCall&);
template void launch<BFloat16, 128>(Context&, const AttentionCall&);

}  // namespace tessera::cuda::dense
