// Where a warp puts the sums of a tile, for others to add up: a slot of shared memory.
#pragma once

namespace tessera::cuda {

// [tokens][16 features] f32, so far apart that the lanes of a fragment lie in different banks.
inline constexpr int kSlotPitch = 20;
constexpr int slot_size(int tokens) { return tokens * kSlotPitch; }

}  // namespace tessera::cuda
