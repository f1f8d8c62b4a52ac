#include "modules/merge_partial.h"

#include <algorithm>
#include <limits>

#include "core/thread_pool.h"
#include "core/type_switch.h"
#include "cpu/attention/merge.h"

namespace tessera {

void PartialSums::clear() const {
  std::fill_n(out.ptr<float>(), out.numel(), 0.f);
  std::fill_n(lse.ptr<float>(), lse.numel(), -std::numeric_limits<float>::infinity());
}

void merge_partial(Context& ctx, const PartialSums& sums, std::int64_t first, const Tensor& part,
                   const Tensor& part_lse) {
  const std::int64_t rows = part.size(1), heads = part.size(2), dim = part.size(3);
  ctx.pool().parallel_for(part.size(0) * rows, [&](std::int64_t i, int) {
    const std::int64_t b = i / rows, row = i % rows;
    with_float_type(part.dtype, [&](auto type) {
      for (std::int64_t h = 0; h < heads; ++h) {
        const auto* from = part.ptr<const decltype(type)>() + b * part.stride(0) +
                           row * part.stride(1) + h * part.stride(2);
        float* to = sums.out.ptr<float>() + b * sums.out.stride(0) +
                    (first + row) * sums.out.stride(1) + h * sums.out.stride(2);
        float& lse =
            sums.lse.ptr<float>()[b * sums.lse.stride(0) + h * sums.lse.stride(1) + first + row];
        const float new_lse =
            part_lse.ptr<const float>()[b * part_lse.stride(0) + h * part_lse.stride(1) + row];
        cpu::merge_attention(to, &lse, from, new_lse, dim);
      }
    });
  });
}

}  // namespace tessera
