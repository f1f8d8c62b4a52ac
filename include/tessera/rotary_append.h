// Everything between the query-key-value product and attention, as one op: rotates queries and keys
// by their positions, and writes keys and values into the pages of a cache.
//
// Threads: any. A call has its Context to itself (tessera/context.h).
#pragma once

#include "tessera/context.h"
#include "tessera/rotary.h"
#include "tessera/tensor.h"

namespace tessera {

struct RotaryAppendArgs {
  Tensor q{};               // [tokens, heads, dim] f32, f16 or bf16; any strides, dim contiguous
  Tensor k{}, v{};          // [tokens, kv_heads, dim] of q's dtype; only read
  Tensor positions{};       // i32 or i64 [tokens]; not negative
  Rope rope{};              // at most dim dims
  bool rotate_keys = true;  // false: keys are stored unrotated, for attention's rope_on_read
  Tensor slots{};           // i32 [tokens]: page * page_size + row; distinct
  // [pages, page_size, kv_heads, dim] of q's dtype. On the CPU, f32 may be stored as f16 or bf16.
  // All may be stored as f8e4m3 or i8, with scales.
  Tensor k_pages{}, v_pages{};
  Tensor q_out{};                 // like q; may be the same view
  Tensor k_scales{}, v_scales{};  // as in KvAppendArgs
};
// Gives the same bits as rotary() of q and of k followed by kv_append(), and treats positions and
// slots that are out of range as they do.
void rotary_append(Context& ctx, const RotaryAppendArgs& args);

}  // namespace tessera
