#include "quant/int8.h"

#include "quant/block.h"

namespace tessera::quant {
void int8_encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search) {
  for_each_block(weight, 0, weight.in_features,
                 [&](const Piece& piece) { int8_encode_block(weight, row, piece, x, search); });
}

void int8_decode_row(const Weight& weight, std::int64_t row, std::int64_t k_begin,
                     std::int64_t k_end, float* out) {
  const auto* codes = row_of<const std::int8_t>(weight.data, row);
  const auto* zeros =
      weight.zeros.defined() ? row_of<const std::int8_t>(weight.zeros, row) : nullptr;
  for_each_block(weight, k_begin, k_end, [&](const Piece& piece) {
    const float scale = float_at(weight.scales, row, piece.block);
    const int zero = zeros ? zeros[piece.block] : 0;
    for (std::int64_t k = piece.begin; k < piece.end; ++k) {
      out[k - k_begin] = static_cast<float>(codes[k] - zero) * scale;
    }
  });
}

}  // namespace tessera::quant
