#include "quant/codec.h"

#include "core/fail.h"
#include "core/type_switch.h"
#include "quant/block.h"
#include "quant/fp8.h"
#include "quant/int4.h"
#include "quant/int8.h"
#include "quant/mxfp4.h"
#include "quant/nf4.h"
#include "quant/nvfp4.h"

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
  switch (weight.format) {
    case Format::dense:
      return convert_dense(weight, row, k_begin, k_end, out);
    case Format::nvfp4:
      return nvfp4_decode_row(weight, row, k_begin, k_end, out);
    case Format::mxfp4:
      return mxfp4_decode_row(weight, row, k_begin, k_end, out);
    case Format::nf4:
      return nf4_decode_row(weight, row, k_begin, k_end, out);
    case Format::int4:
      return int4_decode_row(weight, row, k_begin, k_end, out);
    case Format::int8:
      return int8_decode_row(weight, row, k_begin, k_end, out);
    case Format::fp8:
      return fp8_decode_row(weight, row, k_begin, k_end, out);
  }
}

void encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search) {
  switch (weight.format) {
    case Format::dense:
      fail(ErrorCode::invalid_argument, "encode_row: dense is no packed format");
    case Format::nvfp4:
      return nvfp4_encode_row(weight, row, x, search);
    case Format::mxfp4:
      return mxfp4_encode_row(weight, row, x, search);
    case Format::nf4:
      return nf4_encode_row(weight, row, x, search);
    case Format::int4:
      return int4_encode_row(weight, row, x, search);
    case Format::int8:
      return int8_encode_row(weight, row, x, search);
    case Format::fp8:
      return fp8_encode_row(weight, row, x, search);
  }
}

}  // namespace tessera::quant
