// Keys and values of 8 bits in kernels, E4M3 or int8 (quant/kv8.h): decodes codes to numbers, and
// encodes a row.
//
// Tensor cores take codes as f16 or bf16, which hold them exactly, times a power of two (unit_of)
// that makes all of them less than 2. The scale of a row, which is f32, is applied outside the
// product: scores are multiplied by the scale of their key, and weights by the scale of their
// value.
#pragma once

#include <bit>
#include <cstdint>

#include "cuda/tile/pack.cuh"
#include "cuda/tile/warp.cuh"
#include "quant/e4m3.h"
#include "quant/kv8.h"
#include "tessera/dtype.h"

namespace tessera::cuda {

// ---- reading ------------------------------------------------------------------------------------

// An element of DType::f8e4m3.
struct E4M3 {
  std::uint8_t bits;
};

__device__ inline float to_f32(std::int8_t code) { return static_cast<float>(code); }
__device__ inline float to_f32(E4M3 code) { return e4m3_decode(code.bits); }

// A code of 1 becomes the inverse of this number; scales are multiplied by the number to undo that.
__device__ inline float inverse_unit(DType stored) { return stored == DType::i8 ? 128.f : 256.f; }

// The lowest byte of x as a number times the unit. E4M3's exponent becomes the lowest four bits of
// an f32's exponent. That gives 2^-120 of the number, subnormals included. Codes of NaN become 480.
__device__ inline float in_units(std::uint32_t x, DType stored) {
  if (stored == DType::i8) return 0x1p-7f * static_cast<float>(static_cast<std::int8_t>(x));
  const std::uint32_t bits = (x & 0x80u) << 24 | (x & 0x7fu) << 20;
  return 0x1p112f * std::bit_cast<float>(bits);
}

// Eight codes, the first in the lowest byte, as eight elements of T.
template <typename T>
__device__ uint4 eight_in_units(std::uint32_t first, std::uint32_t second, DType stored) {
  const auto two = [&](std::uint32_t codes) {
    return pack(in_units(codes, stored), in_units(codes >> 8, stored), T());
  };
  return make_uint4(two(first), two(first >> 16), two(second), two(second >> 16));
}

// ---- writing ------------------------------------------------------------------------------------

// A warp writes the row of `dim` elements element(d) to `to`, and its scale.
template <typename Element>
__device__ void encode_row(int dim, DType stored, Element element, std::uint8_t* to, float* scale) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  std::uint32_t largest = 0;
  for (int d = lane; d < dim; d += kWarp) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(element(d)) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  largest = warp_reduce(largest, Max());
  const float divisor = quant::kv8_scale(largest, quant::kv8_reach(stored));
  const bool finite = divisor == divisor;  // else all codes are 0
  for (int d = lane; d < dim; d += kWarp) {
    const float ratio = finite ? element(d) / divisor : 0.f;
    to[d] = stored == DType::i8 ? static_cast<std::uint8_t>(static_cast<int>(rintf(ratio)))
                                : e4m3_encode(ratio);
  }
  if (lane == 0) *scale = divisor;
}

}  // namespace tessera::cuda
