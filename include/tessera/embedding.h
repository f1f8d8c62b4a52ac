// Rows of a table, by index.
//
// Threads: any. A call has its Context to itself (tessera/context.h).
#pragma once

#include <cstdint>

#include "tessera/context.h"
#include "tessera/tensor.h"
#include "tessera/weight.h"

namespace tessera {

struct EmbeddingArgs {
  Tensor ids{};    // i32 or i64 [...]; every id in [0, rows), or a reference into `drawn`
  Weight table{};  // [rows, n], dense or packed, as quantize() or as prepare() made it
  Tensor out{};    // [..., n] f32, f16 or bf16; converted if the table has another dtype
  // i32 [draws], contiguous; optional. An id of -1 - k stands for drawn[k]: a token that the device
  // has drawn and the host has not read yet.
  Tensor drawn{};
  // For a table that is spread over several processes: it has the rows [first_row, first_row +
  // rows) of `all_rows`. Ids of the other rows give zeros. 0: the table has all rows.
  std::int64_t first_row = 0, all_rows = 0;
};
// Writes row `id` of the table for each id. Packed rows are decoded as they are read, to the same
// bits that dequantize() gives.
//
// On the CPU, an id out of range is refused with its value and position before anything is written.
// A GPU cannot report it without waiting: there its row of `out` becomes NaN.
void embedding(Context& ctx, const EmbeddingArgs& args);

}  // namespace tessera
