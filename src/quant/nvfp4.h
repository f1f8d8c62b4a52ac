// NVFP4: E2M1 codes in blocks of 16, an E4M3 scale for each block, one f32 scale for the tensor.
//
//   value = e2m1 * (scale * tensor_scale)
#pragma once

#include <cstdint>

#include "tessera/quant.h"

namespace tessera::quant {

// From the largest magnitude of the whole tensor.
float nvfp4_tensor_scale(float largest, ScaleSearch search);
void nvfp4_encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search);
void nvfp4_decode_row(const Weight& weight, std::int64_t row, std::int64_t k_begin,
                      std::int64_t k_end, float* out);

}  // namespace tessera::quant
