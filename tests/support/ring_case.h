// Attention around a ring of ranks, for tests under mpirun (tests/parallel) and with threads as
// ranks (thread_ranks.h).
#pragma once

#include <cstdint>

#include "reference/attention.h"
#include "reference/test_tensor.h"
#include "support/attention_case.h"
#include "tessera/communicator.h"
#include "tessera/ring_attention.h"

namespace tessera::test {

struct RingCase {
  std::int64_t tokens;
  Mask mask;
  DType dtype = DType::f32;
  float softcap = 0.f;
  std::int64_t kv_heads = 2;
  std::int64_t dim = 16;
};

// The rank's part of a call over a whole sequence.
struct RingCallOfRank {
  RingCallOfRank(Context& ctx, const Communicator& ranks, const RingCase& c);
  // This rank's rows of an array whose axis `axis` is the sequence.
  Array part(const Array& whole, int axis) const;

  int rank;
  RingLayout layout;
  AttentionTensors whole;
  reference::AttentionInputs in;
  TestTensor q, k, v, out, lse;
  RingAttentionArgs args;
};

// Against the float64 twin over the whole sequence.
void check_ring_forward(Context& ctx, Communicator& ranks, const RingCase& c);
void check_ring_backward(Context& ctx, Communicator& ranks, const RingCase& c);

}  // namespace tessera::test
