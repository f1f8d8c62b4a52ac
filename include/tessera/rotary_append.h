// What stands between the query-key-value product and attention, as one op: turns queries and keys
// by their positions and writes keys and values into the pages of a cache.
#pragma once

#include "tessera/context.h"
#include "tessera/rotary.h"
#include "tessera/tensor.h"

namespace tessera {

struct RotaryAppendArgs {
  Tensor q{};             // [tokens, heads, dim] f32, f16 or bf16; any strides, dim contiguous
  Tensor k{}, v{};        // [tokens, kv_heads, dim] of q's dtype; they stay as they are
  Tensor positions{};     // i32 or i64 [tokens]; not negative
  Rope rope{};            // at most dim dims
  bool turn_keys = true;  // false: keys are stored as they are, for attention's rope_on_read
  Tensor slots{};         // i32 [tokens]: page * page_size + row; distinct
  Tensor k_pages{}, v_pages{};  // [pages, page_size, kv_heads, dim] of q's dtype
  Tensor q_out{};               // like q; may be the same view
};
// Bit for bit what rotary() of q and of k, and then kv_append(), give; and what they say of
// positions and slots that are out of range holds here.
void rotary_append(Context& ctx, const RotaryAppendArgs& args);

}  // namespace tessera
