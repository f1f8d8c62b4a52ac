// The kernels of quantize() on a GPU (encode.cu), over a matrix of f32, f16 or bf16 with any stride
// from row to row.
#pragma once

#include <cstdint>

#include "tessera/quant.h"

namespace tessera::cuda {

// The result of the first pass.
struct ScanResult {
  static constexpr unsigned long long kNone = ~0ull;

  std::uint32_t largest_bits = 0;         // of the largest magnitude, as an f32
  unsigned long long not_finite = kNone;  // the first element that is NaN or infinite
};

// `result` is in device memory and holds a ScanResult{} before the call.
void scan_elements(Context& ctx, const Tensor& dense, ScanResult* result);

// Encodes dense [out, in] into the weight, whose memory has been allocated.
void encode_blocks(Context& ctx, const Tensor& dense, const Weight& weight, ScaleSearch search);

}  // namespace tessera::cuda
