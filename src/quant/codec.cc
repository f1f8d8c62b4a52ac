#include "quant/codec.h"

#include "core/fail.h"
#include "core/type_switch.h"
#include "quant/block.h"
#include "quant/format_table.h"

namespace tessera::quant {
namespace {

void convert_dense(const Weight& weight, std::int64_t row, std::int64_t k_begin, std::int64_t k_end,
                   float* out) {
  with_float_type(weight.data.dtype, [&](auto type) {
    const auto* values = row_of<const decltype(type)>(weight.data, row);
    for (std::int64_t k = k_begin; k < k_end; ++k) out[k - k_begin] = to_float(values[k]);
  });
}

}  // namespace

void decode_row(const Weight& weight, std::int64_t row, std::int64_t k_begin, std::int64_t k_end,
                float* out) {
  if (weight.format == Format::dense) return convert_dense(weight, row, k_begin, k_end, out);
  entry(weight.format).decode_row(weight, row, k_begin, k_end, out);
}

void encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search) {
  if (weight.format == Format::dense) {
    fail(ErrorCode::invalid_argument, "encode_row: dense is not a packed format");
  }
  entry(weight.format).encode_row(weight, row, x, search);
}

}  // namespace tessera::quant
