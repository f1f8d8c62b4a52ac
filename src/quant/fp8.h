// FP8: E4M3 codes, an f32 scale for each row.
//
//   value = e4m3 * scale
#pragma once

#include <cstdint>

#include "quant/e4m3.h"
#include "tessera/quant.h"

namespace tessera::quant {

void fp8_encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search);
void fp8_decode_row(const Weight& weight, std::int64_t row, std::int64_t k_begin,
                    std::int64_t k_end, float* out);

}  // namespace tessera::quant
