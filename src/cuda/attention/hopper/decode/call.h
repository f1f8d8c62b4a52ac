// What the decode kernel for Hopper is launched with.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/attention/call.h"
#include "cuda/attention/hopper/decode/plan.h"
#include "cuda/attention/portable/tensor_core.h"

namespace tessera::cuda::hopper_decode {

// A warp multiplies 32 keys at a time. A step is as many of 16 bits, or two times as many of 8, for
// two warps: as many bytes. It is brought by one copy where all of it lies in one page, else by
// more.
inline constexpr int kWarpKeys = 32, kLeastUnit = 16;
constexpr int decode_step_keys(bool codes) { return codes ? 2 * kWarpKeys : kWarpKeys; }

// The most sequences of a call: a block keeps where each begins in shared memory.
inline constexpr int kMostSequences = 1024;

struct DecodeCall {
  // [batch or pages, kv_heads, panels, rows, 128 bytes or a row]; of 8 bits:
  // [batch or pages, blocks' heads, 1, rows, a row of each head of a block]
  CUtensorMap k, v;
  AttentionCall call;
  DecodeShares shares;
  // One part for each piece of a sequence and key head that a block has not computed alone. Parts
  // are numbered by slot + block, both in the order of steps: those of a slot follow each other.
  split::Partials partials;
  int stages;     // of the ring
  int in_flight;  // stages on their way from memory at a time, at most
  int unit;       // keys of one copy: 16 or 32, or 64 of 8 bits
};

}  // namespace tessera::cuda::hopper_decode
