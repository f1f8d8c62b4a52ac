// Rotary position embedding on the CPU. src/ops/rotary.cc has checked the arguments.
#pragma once

#include <cstdint>

#include "core/checked.h"
#include "tessera/rotary.h"

namespace tessera::cpu {

void rotary(Context& ctx, const RotaryArgs& args);

// f32 values of one thread's tables: cos and sin, and both again for interleaved pairs.
inline std::int64_t rotary_scratch_row(std::int64_t pairs) {
  return checked_align(checked_mul(6, pairs), 16);
}
// Workspace that rotary() takes, for any number of tokens.
std::int64_t rotary_scratch_bytes(Context& ctx, const RotaryArgs& args);

// cos and sin of position * inv_freq[i] for i in [0, pairs), each exact to f32.
void rope_cos_sin(std::int64_t position, const float* inv_freq, std::int64_t pairs, float* cos,
                  float* sin);

}  // namespace tessera::cpu
