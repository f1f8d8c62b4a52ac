// Keys and values of 8 bits: one scale for each head of each token. Shared by the CPU and CUDA.
//
//   value = code * scale        scale = largest magnitude of the row / reach
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "core/host_device.h"
#include "quant/block.h"
#include "quant/e4m3.h"
#include "tessera/dtype.h"

namespace tessera::quant {

// The largest code. int8 leaves -128 out: codes are as far from 0 on both sides.
constexpr float kv8_reach(DType dtype) { return dtype == DType::i8 ? 127.f : kE4M3Max; }

// The scale of a row, from the bits of its largest magnitude: as integers, infinity and NaN are
// larger than all others. A row that holds one of them gets the scale NaN, so that it shows.
TESSERA_HOST_DEVICE inline float kv8_scale(std::uint32_t largest, float reach) {
  if (largest >= 0x7f800000u) return std::numeric_limits<float>::quiet_NaN();
  return usable_scale(std::bit_cast<float>(largest) / reach, reach);
}

}  // namespace tessera::quant
