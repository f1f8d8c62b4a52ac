// Rows of a table, by index.
#pragma once

#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera {

struct EmbeddingArgs {
  Tensor ids{};    // i32 or i64 [...]; every id in [0, rows)
  Tensor table{};  // [rows, n] f32, f16 or bf16
  Tensor out{};    // [..., n] f32, f16 or bf16; converted if the table has another dtype
};
// On the CPU, an id out of range is refused with its value and position before anything is written.
// A GPU cannot report it without waiting: there the row of out becomes NaN.
void embedding(Context& ctx, const EmbeddingArgs& args);

}  // namespace tessera
