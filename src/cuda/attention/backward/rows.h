// Two values of every query row, computed once for a backward pass: its log-sum-exp as an exponent
// of 2, and delta = rowsum(dO O) = rowsum(P dP).
#pragma once

#include <cstdint>

#include "cuda/attention/call.h"
#include "tessera/context.h"

namespace tessera::cuda::backward {

// Both [batch, heads, rows]. There may be more rows than the call has queries; the extra rows see
// nothing.
struct RowValues {
  float* exponent;  // +inf if a row sees nothing: 2^(score - inf) = 0
  float* delta;
  std::int64_t rows;
};

void find_row_values(Context& ctx, const AttentionCall& call, const HeadRows& d_out, bool vectors,
                     const RowValues& to);

}  // namespace tessera::cuda::backward
