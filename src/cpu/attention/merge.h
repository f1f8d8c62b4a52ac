// The algebra of partial attention. A result over some of the keys is a pair (out, lse): the
// softmax-weighted mean of their values, and the log of the sum of their exponentials. Two results
// over disjoint keys make the result over both:
//
//   lse = log(e^lse_a + e^lse_b)
//   out = e^(lse_a - lse) out_a + e^(lse_b - lse) out_b
//
// Any order gives the same result up to rounding. (zeros, -inf), the result over no keys, changes
// nothing.
#pragma once

#include <cstdint>

namespace tessera::cpu {

// (out, lse) = (out, lse) merged with (other_out, other_lse); out and other_out are [dim]. T is
// float, Half or BFloat16.
template <typename T>
void merge_attention(float* out, float* lse, const T* other_out, float other_lse, std::int64_t dim);

}  // namespace tessera::cpu
