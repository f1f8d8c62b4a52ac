// The instances of the decode kernel for Hopper, each compiled in its own file.
#pragma once

#include <cstdint>

#include "cuda/attention/hopper/decode/call.h"
#include "cuda/runtime/launch.h"

namespace tessera::cuda::hopper_decode {

// T is Half or BFloat16. `room`: the most shared memory of a block.
template <typename T, int dim>
void launch_kernel(const Launch& launch, std::int64_t room, const DecodeCall& call);
// The same for keys and values of 8 bits.
template <typename T, int dim>
void launch_codes(const Launch& launch, std::int64_t room, const DecodeCall& call);

}  // namespace tessera::cuda::hopper_decode
