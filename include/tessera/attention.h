// The one attention operation. Dense, causal, windowed, sink and sparse attention differ only in
// their Mask. Memory layout, dtype, grouped heads, dropout and softcap are independent of it.
//
//   out = dropout(softmax(softcap(scale * q k^T) + mask)) v
//
// Threads: any. A call has its Context to itself (tessera/context.h).
#pragma once

#include <cstdint>

#include "tessera/context.h"
#include "tessera/dropout.h"
#include "tessera/mask.h"
#include "tessera/rotary.h"
#include "tessera/tensor.h"

namespace tessera {

// With a page table, k and v are page pools, [pages, page_size, kv_heads, dim].
//
// The pages of a sequence, one after the other, form a row of slots. Key j lies in slot j. If there
// is a hole of `size` slots at `begin`, keys j >= begin lie in slot j + size instead. This is how a
// rolling window drops its oldest keys without moving the others: the first keys stay in place, and
// the hole covers the dropped keys of the page after them.
struct PageTable {
  Tensor table{};    // i32 [batch, max pages of a sequence]; entries without keys may hold anything
  Tensor lengths{};  // i32 [batch]: keys of each sequence, not counting the hole
  Tensor holes{};    // optional i32 [batch, 2]: begin and size

  bool defined() const { return table.defined(); }
};

struct AttentionArgs {
  Tensor q{};  // [batch, n_q, heads, dim] f32, f16 or bf16; any strides, dim contiguous
  // [batch, n_k, kv_heads, dim] of q's dtype; kv_heads divides heads. On the CPU, k and v may both
  // be f16 or bf16 if q is f32. They may both be f8e4m3 or i8, with scales.
  Tensor k{}, v{};
  Tensor out{};  // like q
  // Optional f32 [batch, heads, n_q]: the log of the sum of exponentials; -inf where every key is
  // masked.
  Tensor lse{};
  Mask mask{};
  float scale = 0.f;    // 0: 1 / sqrt(dim)
  float softcap = 0.f;  // 0: none; else scores become softcap * tanh(score / softcap)
  Dropout dropout{};    // of the weight of each (batch, head, query, key)
  // For a ragged batch: i32 [sequences + 1], rising from 0 to the total. q, k, v and out then have
  // batch 1, and hold sequences of different lengths one after the other. Give both; with pages,
  // give q_offsets alone.
  Tensor q_offsets{}, k_offsets{};
  PageTable pages{};
  // Keys are stored unrotated. Key j is rotated by j, its position in the cache, as it is read.
  Rope rope_on_read{};
  // For k and v of f8e4m3 or i8, and only for them: f32 [batch, kv_heads, n_k], or with pages
  // [pages, kv_heads, page_size]. A key is its codes times its scale. kv_append() writes both.
  Tensor k_scales{}, v_scales{};
  // A GPU splits the keys of a sequence among blocks, and among fewer of them in a large batch.
  // True: it splits them as for a sequence alone, so that the bits do not depend on the rest of the
  // batch. On the CPU they never do.
  bool fixed_splits = false;
  // The CPU has one kernel for few queries of a sequence and one for many, which add in different
  // orders. True: it always uses the one for many, so that the bits of a query do not depend on how
  // many queries come with it. A GPU ignores it.
  bool many_queries = false;
};
// Writes `out`, and `lse` if it is given.
//
// On a GPU, offsets, lengths, holes and page numbers are not checked, because reading them would
// mean waiting for the device. Offsets, lengths and holes that are out of range are clamped. Keys
// of a page that is not in the pool are NaN. Queries outside a block pattern see nothing.
//
// In f16 and bf16 a GPU multiplies whole tiles: if any pair in a tile is visible, the hidden values
// of the tile are multiplied by 0, not skipped. An infinity or NaN among the values may therefore
// reach a query that does not see it.
void attention(Context& ctx, const AttentionArgs& args);

struct AttentionBackwardArgs {
  AttentionArgs forward{};     // as given to attention(), with the out and lse that it wrote
  Tensor d_out{};              // gradient of out
  Tensor d_q{}, d_k{}, d_v{};  // written; like q, k, v
  // The same bits every time. Without it, a GPU may add parts of d_q in the order in which they
  // arrive.
  bool deterministic = false;
};
// Writes the gradients of q, k and v. Pages and rope_on_read serve inference; they have no backward
// pass.
void attention_backward(Context& ctx, const AttentionBackwardArgs& args);

}  // namespace tessera
