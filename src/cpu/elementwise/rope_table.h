// Cosines and sines of key positions, for attention that rotates keys as it reads them. The Context
// keeps them, because a decoder needs the same ones in every layer of every token, and computing
// them takes as long as attention itself.
#pragma once

#include <cstdint>

#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera::cpu {

// [positions, 2, pairs]: cos and sin of position * inv_freq[pair]. Valid until the next call. Later
// calls will ask for up to `most` positions; memory for them is allocated at once.
const float* rope_table(Context& ctx, const Tensor& inv_freq, std::int64_t positions,
                        std::int64_t most);

}  // namespace tessera::cpu
