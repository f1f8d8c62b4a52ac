// Everything between the query-key-value product and the output layer, as one op: rotates queries
// and keys, writes keys and values into the pages of a cache, and attends over them.
//
// Threads: any. A call has its Context to itself (tessera/context.h).
#pragma once

#include "tessera/attention.h"
#include "tessera/context.h"
#include "tessera/rotary_append.h"

namespace tessera {

struct AppendAttentionArgs {
  RotaryAppendArgs append{};
  // Attention over the pages that `append` writes: k and v are its k_pages and v_pages, and q is
  // its q_out, viewed as [batch, n_q, heads, dim]. The appended tokens are the last keys of their
  // sequences: token i of a sequence's n_q has the slot that the page table gives key
  // n_k - n_q + i.
  AttentionArgs attention{};
  // True: everything that the call reads, except append's q, k and v, was written before the last
  // op that does not overlap with its neighbours, such as embedding(). This holds if the tables and
  // the other keys were written before the forward pass began. A GPU then reads them while the
  // kernel before this one still runs.
  bool settled = false;
};
// Does what rotary_append() followed by attention() does, but leaves the contents of q_out
// unspecified. A token whose slot is out of range may or may not count as a key.
void append_attention(Context& ctx, const AppendAttentionArgs& args);

}  // namespace tessera
