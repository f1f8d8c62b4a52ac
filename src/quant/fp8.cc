#include "quant/fp8.h"

#include "quant/block.h"
#include "quant/e4m3.h"

namespace tessera::quant {
void fp8_encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search) {
  for_each_block(weight, 0, weight.in_features,
                 [&](const Piece& piece) { fp8_encode_block(weight, row, piece, x, search); });
}

void fp8_decode_row(const Weight& weight, std::int64_t row, std::int64_t k_begin,
                    std::int64_t k_end, float* out) {
  const auto* codes = row_of<const std::uint8_t>(weight.data, row);
  const float scale = *row_of<const float>(weight.scales, row);
  for (std::int64_t k = k_begin; k < k_end; ++k) {
    out[k - k_begin] = kE4M3Values[codes[k]] * scale;
  }
}

}  // namespace tessera::quant
