// Rows of a table, by index.
#pragma once

#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera {

struct EmbeddingArgs {
  Tensor
      ids;  // i32 or i64 [...]; every id in [0, rows); one that is not is refused with its position
  Tensor table;  // [rows, n] f32, f16 or bf16
  Tensor out;    // [..., n] f32, f16 or bf16
};
void embedding(Context& ctx, const EmbeddingArgs& args);

}  // namespace tessera
