#include "parallel/ordered_sum.h"

#include "core/type_switch.h"
#include "tessera/half.h"

namespace tessera::parallel {

void ordered_sum(DType dtype, const void* parts, std::int64_t stride, int count, std::int64_t n,
                 void* out) {
  with_float_type(dtype, [&](auto type) {
    using T = decltype(type);
    const T* from = static_cast<const T*>(parts);
    T* to = static_cast<T*>(out);
    for (std::int64_t i = 0; i < n; ++i) {
      float sum = to_float(from[i]);
      for (int r = 1; r < count; ++r) sum += to_float(from[r * stride + i]);
      to[i] = from_float<T>(sum);
    }
  });
}

}  // namespace tessera::parallel
