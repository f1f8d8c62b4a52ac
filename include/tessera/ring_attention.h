// Attention over a sequence that is spread over several processes. Each has some of its rows, as
// queries and as keys and values. The keys and values go around a ring, a block at a time, while
// the block before is computed; partial results merge by (out, lse).
//
//   tokens  |   |   |   |   |   |   |   |   |      2 * size chunks, in a zigzag:
//   rank      0   1   2   3   3   2   1   0        equal work under a causal mask
//
// Runs on the CPU, or on one GPU for each process. The result is that of attention() over the whole
// sequence, up to rounding.
//
// Threads: one at a time for a Communicator and a Context.
#pragma once

#include <array>
#include <cstdint>

#include "tessera/attention.h"
#include "tessera/communicator.h"

namespace tessera {

// Which rows of a sequence a rank has: those of its two chunks, one after the other.
class RingLayout {
 public:
  struct Chunk {
    std::int64_t begin, end;  // rows of the sequence
    std::int64_t size() const { return end - begin; }
  };

  // Chunks begin at multiples of `multiple`: the block of a block pattern, else 1. The last ones
  // may be shorter, or empty.
  RingLayout(std::int64_t tokens, int size, std::int64_t multiple = 1);

  std::array<Chunk, 2> chunks(int rank) const;
  std::int64_t rows(int rank) const;
  std::int64_t most_rows() const;  // of any rank
  std::int64_t tokens() const { return tokens_; }

 private:
  std::int64_t tokens_, step_;
  int size_;
};

struct RingAttentionArgs {
  std::int64_t tokens = 0;  // of the whole sequence
  Tensor q{}, k{}, v{};  // this rank's rows: [batch, rows, heads, dim], as attention() takes them
  Tensor out{};          // like q
  Tensor lse{};          // f32 [batch, heads, rows]; optional
  Mask mask{};           // over the whole sequence
  float scale = 0.f, softcap = 0.f;  // as in AttentionArgs
};
// The layout of the rows of a call.
RingLayout ring_layout(std::int64_t tokens, int size, const Mask& mask);

// Writes this rank's rows of the attention over the whole sequence.
void ring_attention(Context& ctx, Communicator& ranks, const RingAttentionArgs& args);

struct RingAttentionBackwardArgs {
  RingAttentionArgs forward{};  // with the out and lse that ring_attention() wrote
  Tensor d_out{};               // like q
  Tensor d_q{}, d_k{}, d_v{};   // written; like q, k, v
  bool deterministic = false;   // as in AttentionBackwardArgs
};
// Writes the gradients of this rank's rows. Those of keys and values go around the ring with them,
// and end at their own rank.
void ring_attention_backward(Context& ctx, Communicator& ranks,
                             const RingAttentionBackwardArgs& args);

}  // namespace tessera
