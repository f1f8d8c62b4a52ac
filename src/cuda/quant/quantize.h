// The two passes of quantize() on a GPU. src/ops/quantize.cc has checked the arguments.
#pragma once

#include <cstdint>

#include "tessera/quant.h"

namespace tessera::cuda {

struct Scan {
  float largest = 0;  // magnitude, if all are finite
  bool finite = true;
  std::int64_t row = 0, column = 0;  // of the first element that is not finite
  float value = 0;                   // its value
};
// Waits for the device.
Scan scan(Context& ctx, const Tensor& dense);

// Encodes into the codes, scales and zero points of the weight, whose memory has been allocated.
void encode(Context& ctx, const Tensor& dense, const Weight& weight, ScaleSearch search);

}  // namespace tessera::cuda
