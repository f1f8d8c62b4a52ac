// Between the published layout of a packed weight and the tiles of tile_layout.h.
#pragma once

#include "tessera/context.h"
#include "tessera/weight.h"

namespace tessera::cuda {

// Both weights are on the Context's device; the target's tensors have the right sizes and are
// contiguous.
void repack(Context& ctx, const Weight& published, const Weight& tiled);
// Restores the published weight bit for bit, except that 16-bit scales come back as f32.
void unpack(Context& ctx, const Weight& tiled, const Weight& published);

}  // namespace tessera::cuda
