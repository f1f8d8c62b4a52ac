#include "modules/merge_partial.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/thread_pool.h"
#include "core/type_switch.h"
#include "tessera/half.h"

namespace tessera {
namespace {

constexpr float kNoKeys = -std::numeric_limits<float>::infinity();

template <typename T>
void merge_row(const T* part, float part_lse, std::int64_t dim, float* out, float& lse) {
  if (part_lse == kNoKeys) return;
  const float top = std::max(lse, part_lse);
  const float old_weight = std::exp(lse - top), new_weight = std::exp(part_lse - top);
  const float sum = old_weight + new_weight;
  for (std::int64_t d = 0; d < dim; ++d) {
    out[d] = (out[d] * old_weight + to_float(part[d]) * new_weight) / sum;
  }
  lse = top + std::log(sum);
}

}  // namespace

void PartialSums::clear() const {
  std::fill_n(out.ptr<float>(), out.numel(), 0.f);
  std::fill_n(lse.ptr<float>(), lse.numel(), kNoKeys);
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
        merge_row(from, new_lse, dim, to, lse);
      }
    });
  });
}

}  // namespace tessera
