// The one attention operation. What differs between dense, causal, windowed, sink and sparse
// attention is the Mask; memory layout, dtype, grouped heads, dropout and softcap are orthogonal to
// it.
//
//   out = dropout(softmax(softcap(scale * q k^T) + mask)) v
#pragma once

#include <cstdint>

#include "tessera/context.h"
#include "tessera/dropout.h"
#include "tessera/mask.h"
#include "tessera/rotary.h"
#include "tessera/tensor.h"

namespace tessera {

// k and v are then pools of pages, [pages, page_size, kv_heads, dim].
//
// Key j of a sequence lies in slot j of the slots that its pages line up, or, where there is a hole
// of `size` slots at `begin` and j >= begin, in slot j + size. That is how a rolling window drops
// its oldest keys without moving the rest: the first keys stay where they are, the hole covers what
// has been dropped of the page after them.
struct PageTable {
  Tensor table{};    // i32 [batch, max pages of a sequence]; pages without keys may be anything
  Tensor lengths{};  // i32 [batch]: keys of each sequence, without the hole
  Tensor holes{};    // optional i32 [batch, 2]: begin and size

  bool defined() const { return table.defined(); }
};

struct AttentionArgs {
  Tensor q{};       // [batch, n_q, heads, dim] f32, f16 or bf16; any strides, dim contiguous
  Tensor k{}, v{};  // [batch, n_k, kv_heads, dim] of q's dtype; kv_heads divides heads
  Tensor out{};     // like q
  Tensor lse{};  // optional f32 [batch, heads, n_q]: log of the sum of exponentials; -inf if all is
                 // masked
  Mask mask{};
  float scale = 0.f;    // 0: 1 / sqrt(dim)
  float softcap = 0.f;  // 0: none; else softcap * tanh(score / softcap)
  Dropout dropout{};    // of the weight of (batch, head, query, key)
  // Ragged batch: sequences of different lengths one after the other, in q, k, v and out of
  // batch 1. i32 [sequences + 1], from 0, rising; the last is the total. Both or, with pages,
  // q_offsets alone.
  Tensor q_offsets{}, k_offsets{};
  PageTable pages{};
  // Keys are stored unrotated: key j is turned by j, its position in the cache, as it is read.
  Rope rope_on_read{};
};
// Nothing that lies on a GPU is read to check it, as that would mean waiting: there, offsets,
// lengths and holes that are out of range are clamped to it, keys of a page that is not in the pool
// are NaN, and queries outside of a block pattern see nothing.
//
// In f16 and bf16 a GPU multiplies tiles: values of keys that a query does not see are multiplied
// by 0 where another query of its tile sees keys beside them, so an infinity or NaN among values
// may show there.
void attention(Context& ctx, const AttentionArgs& args);

struct AttentionBackwardArgs {
  AttentionArgs forward{};     // as given to attention(), with out and lse as it wrote them
  Tensor d_out{};              // gradient of out
  Tensor d_q{}, d_k{}, d_v{};  // written; like q, k, v
};
// Not for pages nor rope_on_read, which serve inference.
void attention_backward(Context& ctx, const AttentionBackwardArgs& args);

}  // namespace tessera
