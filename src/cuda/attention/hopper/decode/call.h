// The arguments of the decode kernel for Hopper.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/attention/call.h"
#include "cuda/attention/hopper/decode/plan.h"
#include "cuda/attention/portable/tensor_core.h"

namespace tessera::cuda::hopper_decode {

// A warp multiplies 32 keys at a time. A step is 32 keys of 16 bits, or 64 of 8 bits for two warps:
// the same number of bytes. One copy loads a step if all of it lies in one page, else several do.
inline constexpr int kWarpKeys = 32, kLeastUnit = 16;
constexpr int decode_step_keys(bool codes) { return codes ? 2 * kWarpKeys : kWarpKeys; }

// The most sequences of a call: a block keeps the start of each in shared memory.
inline constexpr int kMostSequences = 1024;

struct DecodeCall {
  // [batch or pages, kv_heads, panels, rows, 128 bytes or a row]; of 8 bits: [batch or pages,
  // groups of heads, 1, rows, a row of each head of the group]
  CUtensorMap k, v;
  AttentionCall call;
  DecodeShares shares;
  // One part for each piece of a sequence and key head that several blocks share. Parts are
  // numbered by slot + block, both in the order of steps, so the parts of a slot follow each other.
  split::Partials partials;
  int stages;     // of the ring
  int in_flight;  // the most stages in flight at a time
  int unit;       // keys of one copy: 16 or 32, or 64 of 8 bits
};

}  // namespace tessera::cuda::hopper_decode
