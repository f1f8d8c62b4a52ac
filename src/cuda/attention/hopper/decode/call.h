// What the decode kernel for Hopper is launched with.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/attention/call.h"
#include "cuda/attention/hopper/decode/plan.h"
#include "cuda/attention/portable/tensor_core.h"

namespace tessera::cuda::hopper_decode {

// A step is 32 keys. They are brought by one copy where they all lie in one page, else by two.
inline constexpr int kStepKeys = 32, kLeastUnit = 16;

// The most sequences of a call: a block keeps where each begins in shared memory.
inline constexpr int kMostSequences = 1024;

struct DecodeCall {
  CUtensorMap k, v;  // [batch or pages, kv_heads, panels, rows, 128 bytes or a row]
  AttentionCall call;
  DecodeShares shares;
  // One part for each piece of a sequence and key head that a block has not computed alone. Parts
  // are numbered by slot + block, both in the order of steps: those of a slot follow each other.
  split::Partials partials;
  int stages;     // of the ring
  int in_flight;  // stages on their way from memory at a time, at most
  int unit;       // keys of one copy: 16 or 32
};

}  // namespace tessera::cuda::hopper_decode
