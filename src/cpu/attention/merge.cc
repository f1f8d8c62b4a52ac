#include "cpu/attention/merge.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/half.h"

namespace tessera::cpu {

template <typename T>
void merge_attention(float* out, float* lse, const T* other_out, float other_lse,
                     std::int64_t dim) {
  if (other_lse == -std::numeric_limits<float>::infinity()) return;
  // Relative to the larger one, no exponential overflows, and one of the two is 1.
  const float largest = std::max(*lse, other_lse);
  const float ours = std::exp(*lse - largest), theirs = std::exp(other_lse - largest);
  const float sum = ours + theirs;
  const float a = ours / sum, b = theirs / sum;
  for (std::int64_t i = 0; i < dim; ++i) out[i] = a * out[i] + b * to_float(other_out[i]);
  *lse = largest + std::log(sum);
}

template void merge_attention(float*, float*, const float*, float, std::int64_t);
template void merge_attention(float*, float*, const Half*, float, std::int64_t);
template void merge_attention(float*, float*, const BFloat16*, float, std::int64_t);

}  // namespace tessera::cpu
