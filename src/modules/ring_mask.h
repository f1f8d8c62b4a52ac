// What the rows of one chunk see of another: a mask over a whole sequence, as calls of attention()
// on slices of it.
#pragma once

#include <vector>

#include "tessera/mask.h"
#include "tessera/ring_attention.h"

namespace tessera {

// attention() over these rows and keys of the sequence with this mask.
struct RingCall {
  RingLayout::Chunk q, k;
  Mask mask;
};
// The calls that together cover `mask` over the two chunks. For each row, a key is in at most one
// of them. If no row sees a key, there is no call.
std::vector<RingCall> ring_calls(const Mask& mask, const RingLayout::Chunk& q,
                                 const RingLayout::Chunk& k);

}  // namespace tessera
