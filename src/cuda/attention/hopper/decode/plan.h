// How the decode kernel for Hopper divides its work.
#pragma once

namespace tessera::cuda {

// Blocks and their shares. The steps of all sequences, head after head, form one list. It is cut
// into `groups` equal groups of heads, and each group is divided evenly among `each` blocks.
//
//   groups = kv_heads   every head has as many blocks, and all heads read the same keys at the same
//                       time: adjacent memory is read together
//   groups = 1          where that would leave too many multiprocessors idle
struct DecodeShares {
  int groups = 1, each = 1;

  int blocks() const { return groups * each; }
};

// Neighbouring key heads that share a block, so that two blocks never read the same 128 bytes at
// different times: two heads if a head's row is not a multiple of 128 bytes.
constexpr int decode_heads(int row_bytes) { return row_bytes % 128 == 0 ? 1 : 2; }

struct HopperDecodePlan {
  DecodeShares shares{};
  int heads = 1;  // of a block
  int rows = 0;   // of a key head, at most
};

}  // namespace tessera::cuda
