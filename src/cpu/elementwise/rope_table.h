// Cosines and sines of key positions, for attention that turns keys as it reads them. They are kept
// in the Context: a decoder asks for the same ones in every layer of every token, and forming them
// takes as long as attention itself.
#pragma once

#include <cstdint>

#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera::cpu {

// [positions, 2, pairs]: cos and sin of position * inv_freq[pair]. Valid until the next call.
const float* rope_table(Context& ctx, const Tensor& inv_freq, std::int64_t positions);

}  // namespace tessera::cpu
