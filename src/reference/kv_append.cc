#include "reference/kv_append.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "reference/quant.h"
#include "reference/rounding.h"

namespace tessera::reference {

Array kv_append(const Array& x, const Array& slots, const Array& pages) {
  Array out = pages;
  for (std::int64_t token = 0; token < x.size(0); ++token) {
    const auto slot = static_cast<std::int64_t>(slots.at(token));
    for (std::int64_t h = 0; h < x.size(1); ++h) {
      for (std::int64_t d = 0; d < x.size(2); ++d) {
        out.at(slot / pages.size(1), slot % pages.size(1), h, d) = x.at(token, h, d);
      }
    }
  }
  return out;
}

Scaled kv_append(const Array& x, const Array& slots, const Scaled& pages, DType stored) {
  const std::vector<double> values = code_values(stored == DType::i8 ? Format::int8 : Format::fp8);
  const double reach = stored == DType::i8 ? 127 : 448;
  const std::int64_t page_size = pages.codes.size(1);
  Array codes(x.shape);
  Array scales = pages.scales;
  for (std::int64_t token = 0; token < x.size(0); ++token) {
    const auto slot = static_cast<std::int64_t>(slots.at(token));
    for (std::int64_t h = 0; h < x.size(1); ++h) {
      const double* row = x.row(token, h);
      double largest = 0;
      bool finite = true;
      for (std::int64_t d = 0; d < x.size(2); ++d) {
        largest = std::max(largest, std::abs(row[d]));
        finite = finite && std::isfinite(row[d]);
      }
      double& scale = scales.at(slot / page_size, h, slot % page_size);
      // No scale is below the smallest normal f32: a row of zeros has one too.
      scale = finite ? std::max<double>(rounded(largest / reach, DType::f32), FLT_MIN) : NAN;
      for (std::int64_t d = 0; d < x.size(2) && finite; ++d) {
        const double ratio = rounded(row[d] / scale, DType::f32);
        codes.at(token, h, d) = values[static_cast<std::size_t>(nearest_code(values, ratio))];
      }
    }
  }
  return {kv_append(codes, slots, pages.codes), scales};
}

Array decoded(const Scaled& stored) {
  Array out = stored.codes;
  for (std::int64_t p = 0; p < out.size(0); ++p) {
    for (std::int64_t j = 0; j < out.size(1); ++j) {
      for (std::int64_t h = 0; h < out.size(2); ++h) {
        for (std::int64_t d = 0; d < out.size(3); ++d) {
          out.at(p, j, h, d) *= stored.scales.at(p, h, j);
        }
      }
    }
  }
  return out;
}

}  // namespace tessera::reference
