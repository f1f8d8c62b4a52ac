// LayerNorm and RMSNorm on the CPU. src/ops/norm.cc has checked the arguments.
#pragma once

#include <cstdint>

#include "core/checked.h"
#include "tessera/norm.h"

namespace tessera::cpu {

void layer_norm(Context& ctx, const NormArgs& args);
void rms_norm(Context& ctx, const NormArgs& args);

// Distance between the scratch rows of two threads, in f32 values: whole steps of four vectors on
// every target.
inline std::int64_t norm_scratch_row(std::int64_t n) { return checked_align(n, 64); }
// Workspace that either norm takes, for any number of rows.
std::int64_t norm_scratch_bytes(Context& ctx, const NormArgs& args);

}  // namespace tessera::cpu
