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

// What rotary() does for each token, in the calling thread: the tables of its position, of
// rotary_scratch_row() values, and the rotation of its heads by them.
void make_rotary_tables(const Rope& rope, std::int64_t position, float* tables);
void rotate_token(const RotaryArgs& args, std::int64_t batch, std::int64_t token,
                  const float* tables);

// Element `at` of positions in i32 or i64.
inline std::int64_t position_at(const Tensor& positions, std::int64_t at) {
  return positions.dtype == DType::i64 ? positions.ptr<const std::int64_t>()[at]
                                       : positions.ptr<const std::int32_t>()[at];
}

// cos and sin of position * inv_freq[i] for i in [0, pairs), each exact to f32.
void rope_cos_sin(std::int64_t position, const float* inv_freq, std::int64_t pairs, float* cos,
                  float* sin);

}  // namespace tessera::cpu
