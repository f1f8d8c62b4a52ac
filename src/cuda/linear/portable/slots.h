// A slot of shared memory: a warp puts the sums of a tile there, and other warps add them up.
#pragma once

namespace tessera::cuda {

// [tokens][16 features] of f32, with a pitch that puts the lanes of a fragment in different banks.
inline constexpr int kSlotPitch = 20;
constexpr int slot_size(int tokens) { return tokens * kSlotPitch; }

}  // namespace tessera::cuda
