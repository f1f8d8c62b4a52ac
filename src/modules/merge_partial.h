// Attention over some of the keys, merged into the result over others, row by row
// (cpu/attention/merge.h has the algebra).
#pragma once

#include <cstdint>

#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera {

// Results so far, in f32, on the CPU.
struct PartialSums {
  Tensor out;  // [batch, rows, heads, dim]
  Tensor lse;  // [batch, heads, rows]

  // No key has been seen.
  void clear() const;
};

// Into rows [first, first + part's rows) of the sums. part: f32, f16 or bf16 [batch, rows, heads,
// dim]; part_lse: f32 [batch, heads, rows].
void merge_partial(Context& ctx, const PartialSums& sums, std::int64_t first, const Tensor& part,
                   const Tensor& part_lse);

}  // namespace tessera
