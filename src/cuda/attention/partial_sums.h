// Partial results of attention, merged on the GPU. src/ops/partial_sums.cc has checked the
// arguments.
#pragma once

#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera::cuda {

// (out, lse) = (out, lse) merged with (part, part_lse): [batch, rows, heads, dim] and
// [batch, heads, rows].
void merge_partial(Context& ctx, const Tensor& out, const Tensor& lse, const Tensor& part,
                   const Tensor& part_lse);
// sum += part, both [batch, rows, heads, dim].
void add_partial(Context& ctx, const Tensor& part, const Tensor& sum);
// A contiguous tensor of floats.
void fill(Context& ctx, const Tensor& tensor, float value);

}  // namespace tessera::cuda
