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

// No key has been seen: zeros and -inf. Both are contiguous.
void clear_partial(Context& ctx, const PartialSums& sums);

// Into rows [first, first + part's rows) of the sums. part: f32, f16 or bf16 [batch, rows, heads,
// dim]; part_lse: f32 [batch, heads, rows].
void merge_partial(Context& ctx, const PartialSums& sums, std::int64_t first, const Tensor& part,
                   const Tensor& part_lse);

// sum += part. sum: f32 [batch, rows, heads, dim]; part: the same shape, f32, f16 or bf16.
void add_partial(Context& ctx, const Tensor& part, const Tensor& sum);

// All elements of a contiguous tensor become 0. f32, f16 or bf16.
void fill_zeros(Context& ctx, const Tensor& tensor);

}  // namespace tessera
