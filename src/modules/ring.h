// What the forward and the backward pass around the ring share.
#pragma once

#include <memory>

#include "core/workspace.h"
#include "modules/ring_mask.h"
#include "tessera/ring_attention.h"

namespace tessera {

// Refuses arguments that do not fit each other.
void check_ring(const char* op, const Communicator& ranks, const RingAttentionArgs& args);

// The blocks of all ranks, one after the other: this rank's own block first, then those of the
// ranks before it. While one block is used, the next is on its way.
class Ring {
 public:
  // Two blocks [2, batch, most rows, kv_heads, dim] of `dtype`; the first holds k and v.
  Ring(Context& ctx, Communicator& ranks, Workspace::Frame& frame, const RingLayout& layout,
       const Tensor& k, const Tensor& v, DType dtype);

  int owner() const { return owner_; }  // of the block that is here
  // Rows [begin, end) of the owner's keys, or values: [batch, rows, kv_heads, dim].
  Tensor keys(std::int64_t begin, std::int64_t end) const { return rows(0, begin, end); }
  Tensor values(std::int64_t begin, std::int64_t end) const { return rows(1, begin, end); }
  // The whole block: [2, batch, most rows, kv_heads, dim].
  const Tensor& block() const { return here_; }
  // Starts to send the block to the next rank, and to receive that of the rank before.
  void start();
  // Waits for the next block, which becomes the current one.
  void turn();

 private:
  Tensor rows(int which, std::int64_t begin, std::int64_t end) const {
    return here_.select(0, which).slice(1, begin, end);
  }

  Context& ctx_;
  Communicator& ranks_;
  Tensor here_, next_;
  int owner_;
  std::unique_ptr<Communicator::Pending> pending_;
};

// Calls visit(call, first row of the call's queries here, first row of its keys in the block) for
// each part of the mask between this rank's rows and the owner's.
template <typename F>
void for_each_call(const RingLayout& layout, int rank, int owner, const Mask& mask, F&& visit) {
  std::int64_t q_row = 0;
  for (const RingLayout::Chunk& q : layout.chunks(rank)) {
    std::int64_t k_row = 0;
    for (const RingLayout::Chunk& k : layout.chunks(owner)) {
      for (const RingCall& call : ring_calls(mask, q, k)) {
        visit(call, q_row + call.q.begin - q.begin, k_row + call.k.begin - k.begin);
      }
      k_row += k.size();
    }
    q_row += q.size();
  }
}

}  // namespace tessera
