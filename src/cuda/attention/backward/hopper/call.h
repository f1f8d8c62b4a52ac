// The arguments of the Hopper kernel for the gradients of attention.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/attention/call.h"
#include "cuda/runtime/launch.h"

namespace tessera::cuda::backward {

inline constexpr int kHopperKeys = 128;  // of a block: 64 for each of two warpgroups

// Query rows of a tile. The scores of more rows would need more registers than there are.
constexpr int hopper_queries(int dim) { return dim <= 64 ? 128 : 64; }

// Sums of dQ lie in memory in a warpgroup's register order: pieces of 64 x 64, two for a query
// tile. Each thread's four neighbouring sums are adjacent, followed by the next thread's.
inline constexpr int kPieceFloats = 64 * 64;
// Where column 8 * eight + 2 * (thread % 4) of a thread's first row lies, in a piece. The next
// column follows, then the same two columns of the row 8 further down.
TESSERA_HOST_DEVICE constexpr int place_in_piece(int thread, int eight) {
  return 4 * (128 * eight + thread);
}

struct HopperGradients {
  CUtensorMap q, k, v, d_out;     // [batch, heads, rows, dim] from the outermost in
  const float *exponent, *delta;  // [batch, heads, rows of whole tiles] (rows.h)
  float* d_q_sums;                // [batch, heads, tiles, 2, kPieceFloats], zeros before
  HeadRows d_k, d_v;
  int heads, kv_heads, group, dim, n_q, n_k;
  int query_tiles, key_tiles;
  // Key j is seen from position p where -left <= j - p <= right (-1: open), and below n_sink.
  int left, right, n_sink;
  float q_factor, scale;  // exponent of 2 = q_factor * (q k)
  // The order of work: by section of key heads whose queries fit into the L2 cache together; in a
  // section from the first keys, which most queries see under a causal mask, to the last.
  int section_heads, all_heads;
};

// T is Half or BFloat16.
template <typename T, int dim>
void launch_hopper(const Launch& launch, const HopperGradients& gradients);

// Converts the sums to d_q.
void finish_queries(Context& ctx, const AttentionCall& call, const HeadRows& d_q, int queries,
                    int query_tiles, const float* sums);

}  // namespace tessera::cuda::backward
