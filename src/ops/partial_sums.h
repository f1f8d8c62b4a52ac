// Attention over some of the keys, merged into the result over others, row by row
// (cpu/attention/merge.h has the algebra). For rings and spread caches; not an op for users.
#pragma once

#include <cstdint>

#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera {

// Results so far, in f32, on the Context's device.
struct PartialSums {
  Tensor out;  // [batch, rows, heads, dim]
  Tensor lse;  // [batch, heads, rows]
};

// Sets the sums to those of no keys: zeros and -inf. Both tensors are contiguous.
void clear_partial(Context& ctx, const PartialSums& sums);

// Merges a part into rows [first, first + part's rows) of the sums. part: f32, f16 or bf16 [batch,
// rows, heads, dim]; part_lse: f32 [batch, heads, rows].
void merge_partial(Context& ctx, const PartialSums& sums, std::int64_t first, const Tensor& part,
                   const Tensor& part_lse);

// sum += part. sum: f32 [batch, rows, heads, dim]; part: the same shape, f32, f16 or bf16.
void add_partial(Context& ctx, const Tensor& part, const Tensor& sum);

// Sets all elements of a contiguous tensor of f32, f16 or bf16 to 0.
void fill_zeros(Context& ctx, const Tensor& tensor);

}  // namespace tessera
