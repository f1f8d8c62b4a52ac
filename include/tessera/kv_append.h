// Writes the keys and values of new tokens into the pages of a cache.
//
// Threads: any. A call has its Context to itself (tessera/context.h).
#pragma once

#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera {

struct KvAppendArgs {
  Tensor k{}, v{};  // [tokens, kv_heads, dim] f32, f16 or bf16; any strides, dim contiguous
  Tensor slots{};   // i32 [tokens]: page * page_size + row; distinct
  // [pages, page_size, kv_heads, dim] of k's dtype. On the CPU, f32 may be stored as f16 or bf16,
  // rounded to nearest even. All may be stored as f8e4m3 or i8, with scales.
  Tensor k_pages{}, v_pages{};
  // For pages of f8e4m3 or i8, and only for them: f32 [pages, kv_heads, page_size]. A head of a
  // token has one scale, its largest magnitude / 448 (f8e4m3) or / 127 (i8). Its codes are its
  // elements / scale, rounded to nearest even. If an element is not finite, the scale is NaN.
  Tensor k_scales{}, v_scales{};
};
// Stores k and v in their slots. On the CPU, a slot out of range is refused before anything is
// written. A GPU, where checking would mean waiting, drops that token.
void kv_append(Context& ctx, const KvAppendArgs& args);

}  // namespace tessera
