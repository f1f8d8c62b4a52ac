// INT4 (compressed-tensors' "pack-quantized"): codes 0..15 in blocks of 32, 64 or 128, a bf16 scale
// for each and, where asked for, a zero point: the code that means 0 (8 without one).
//
//   value = (code - zero) * scale
#pragma once

#include <cstdint>

#include "core/half.h"
#include "tessera/quant.h"

namespace tessera::quant {

inline constexpr std::uint8_t kInt4Zero = 8;  // of a weight without zero points

void int4_encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search);
void int4_decode_row(const Weight& weight, std::int64_t row, std::int64_t k_begin,
                     std::int64_t k_end, float* out);

}  // namespace tessera::quant
