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
// The calls that together are `mask` over the two chunks. A key is in one of them for each row at
// most. Where no row sees a key there is none.
std::vector<RingCall> ring_calls(const Mask& mask, const RingLayout::Chunk& q,
                                 const RingLayout::Chunk& k);

}  // namespace tessera
