// What the benchmarks of attention() share: tensors of noise, and the error of an output.
#pragma once

#include <string>

#include "noise.h"
#include "row.h"
#include "tessera/attention.h"

namespace tessera::bench {

struct AttentionShape {
  std::int64_t batch, queries, keys, heads, kv_heads, dim;
  DType dtype;
};

struct AttentionTensors {
  Matrix q, k, v, out;
};

AttentionTensors make_tensors(const Noise& noise, const AttentionShape& shape, std::uint32_t seed);
AttentionArgs args_of(const AttentionTensors& tensors, const AttentionShape& shape,
                      const Mask& mask);
// The error of the last head of the last sequence, against the same call in f32 (with the same
// codes if keys and values are codes). Keys and values must be contiguous.
double error_of(Context& ctx, const AttentionArgs& args);
// The columns that distinguish one call from another.
Row row_of(const char* op, const AttentionShape& shape, const std::string& mask);

}  // namespace tessera::bench
