// linear() and gated_linear() of a few tokens: the streaming kernel (stream.cuh), as the host sees
// it.
#pragma once

#include <cstdint>

#include "cuda/linear/call.h"

namespace tessera::cuda {

struct StreamPlan {
  int tiles = 0;           // of the weight; with a gated product, up has as many again
  int blocks = 0;          // that share them
  int chunk_pairs = 0;     // pairs of slabs whose activations are in shared memory at the same time
  bool one_token = false;  // the kernel for one token (stream_one_token.cuh), where it is faster
  std::int64_t shared_bytes = 0;
};

// Whether the kernel takes this call: up to 16 tokens with weights in tiles, or up to 8 with dense
// weights of the activations' dtype, whose rows are aligned to 16 bytes and whole pairs of slabs;
// activations in f16 or bf16 that fit into shared memory, in chunks if need be; plain matrices
// (matrix.h).
bool takes_stream(const LinearCall& call);
StreamPlan plan_stream(const LinearCall& call);
void run_stream(const LinearCall& call, const StreamPlan& plan);
// Whether there is a kernel for one token (stream_one_token.cuh). plan_stream() takes it where it
// is faster.
bool has_one_token(const LinearCall& call, const StreamPlan& plan);

}  // namespace tessera::cuda
