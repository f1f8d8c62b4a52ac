#include "cuda/attention/hopper/decode/decode.cuh"

namespace tessera::cuda::hopper_decode {

template void launch_codes<Half, 80>(const Launch&, std::int64_t, const DecodeCall&);
template void launch_codes<BFloat16, 80>(const Launch&, std::int64_t, const DecodeCall&);

}  // namespace tessera::cuda::hopper_decode
