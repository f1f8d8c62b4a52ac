// INT8: two's complement codes, an f32 scale for each row or group.
//
//   value = code * scale
#pragma once

#include <cstdint>

#include "tessera/quant.h"

namespace tessera::quant {

void int8_encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search);
void int8_decode_row(const Weight& weight, std::int64_t row, std::int64_t k_begin,
                     std::int64_t k_end, float* out);

}  // namespace tessera::quant
