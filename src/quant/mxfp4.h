// MXFP4 (OCP Microscaling Formats 1.0): E2M1 codes in blocks of 32, a power of two (E8M0) for each.
//
//   value = e2m1 * scale
#pragma once

#include <cstdint>

#include "tessera/quant.h"

namespace tessera::quant {

void mxfp4_encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search);
void mxfp4_decode_row(const Weight& weight, std::int64_t row, std::int64_t k_begin,
                      std::int64_t k_end, float* out);

}  // namespace tessera::quant
