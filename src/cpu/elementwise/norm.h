// LayerNorm and RMSNorm on the CPU. Arguments have been checked by src/ops/norm.cc.
#pragma once

#include <cstdint>

#include "core/checked.h"
#include "tessera/norm.h"

namespace tessera::cpu {

void layer_norm(Context& ctx, const NormArgs& args);
void rms_norm(Context& ctx, const NormArgs& args);

// f32 values from one thread's scratch row to the next: whole steps of four vectors, on every
// target.
inline std::int64_t norm_scratch_row(std::int64_t n) { return checked_align(n, 64); }
// What either takes of the workspace, for any number of rows.
std::int64_t norm_scratch_bytes(Context& ctx, const NormArgs& args);

}  // namespace tessera::cpu
