// Rows of a table, by index.
#pragma once

#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera {

struct EmbeddingArgs {
  Tensor ids{};    // i32 or i64 [...]; every id in [0, rows)
  Tensor table{};  // [rows, n] f32, f16 or bf16
  Tensor out{};    // [..., n] f32, f16 or bf16; converted where that is not the table's dtype
};
// On the CPU an id out of range is refused, with its value and position, before anything is
// written. A GPU cannot say so without waiting: there its row of out is NaN.
void embedding(Context& ctx, const EmbeddingArgs& args);

}  // namespace tessera
