// Weights of every format in kernels: each format has a small object that returns any weight of the
// matrix as f32. The bits equal those of src/quant on the CPU: the scale of the block in f32, then
// value * scale, each product rounded to f32 (__fmul_rn is never fused into a sum).
//
//   with_decoder(weight, [&](auto decoder) { launch(kernel, grid, decoder); });
//
// and in the kernel decoder(row, k) is a weight.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "core/type_switch.h"
#include "cuda/tile/element.cuh"
#include "quant/e4m3.h"
#include "quant/e8m0.h"
#include "quant/int4.h"
#include "quant/nf4.h"
#include "tessera/weight.h"

namespace tessera::cuda {

// ---- parts --------------------------------------------------------------------------------------

// Codes, scales or zero points: a matrix with rows of any stride.
template <typename T>
struct WeightPart {
  const T* data;
  std::int64_t stride;  // elements

  explicit WeightPart(const Tensor& tensor)
      : data(tensor.ptr<const T>()), stride(tensor.strides[0]) {}
  __device__ T at(std::int64_t row, std::int64_t column) const {
    return data[row * stride + column];
  }
};

using Bytes = WeightPart<std::uint8_t>;

__device__ inline unsigned low_first(const Bytes& codes, std::int64_t row, std::int64_t k) {
  return codes.at(row, k / 2) >> (k % 2 == 0 ? 0 : 4) & 15u;
}
__device__ inline unsigned high_first(const Bytes& codes, std::int64_t row, std::int64_t k) {
  return codes.at(row, k / 2) >> (k % 2 == 0 ? 4 : 0) & 15u;
}

// The table of quant/e2m1.h, without memory. Below 1 there are 0 and 0.5. From 1 on, exponent and
// mantissa bit are an f32's, except for the bias.
__device__ inline float e2m1_value(unsigned code) {
  const unsigned magnitude = code & 7u;
  const unsigned bits = magnitude < 2 ? magnitude * 0x3f000000u : (magnitude + 252u) << 22;
  return std::bit_cast<float>(bits | (code & 8u) << 28);
}

__device__ const std::array<float, 16> kNf4Table = kNf4Values;

// Scales of f32, f16 or bf16.
struct FloatScales {
  AnyFloats values;
  std::int64_t stride;

  explicit FloatScales(const Tensor& tensor) : values(tensor), stride(tensor.strides[0]) {}
  __device__ float at(std::int64_t row, std::int64_t block) const {
    return values[row * stride + block];
  }
};

// Maps a weight of a row to its block. Groups are nearly always powers of two, and a 64-bit
// division takes a hundred instructions.
struct Groups {
  std::int64_t group;  // 0: the whole row
  int shift;           // of a power of two; else -1

  explicit Groups(std::int64_t size)
      : group(size),
        shift(size == 0 ? 63
              : std::has_single_bit(static_cast<std::uint64_t>(size))
                  ? std::countr_zero(static_cast<std::uint64_t>(size))
                  : -1) {}
  __device__ std::int64_t block_of(std::int64_t k) const {
    return shift >= 0 ? k >> shift : k / group;
  }
};

// ---- formats ------------------------------------------------------------------------------------

template <typename T>
struct DenseDecoder {
  WeightPart<T> values;

  explicit DenseDecoder(const Weight& weight) : values(weight.data) {}
  __device__ float operator()(std::int64_t row, std::int64_t k) const {
    return to_f32(values.at(row, k));
  }
};

struct Nvfp4Decoder {
  Bytes codes, scales;
  float tensor_scale;

  explicit Nvfp4Decoder(const Weight& weight)
      : codes(weight.data), scales(weight.scales), tensor_scale(weight.tensor_scale) {}
  __device__ float operator()(std::int64_t row, std::int64_t k) const {
    const float scale = __fmul_rn(e4m3_decode(scales.at(row, k / 16)), tensor_scale);
    return __fmul_rn(e2m1_value(low_first(codes, row, k)), scale);
  }
};

struct Mxfp4Decoder {
  Bytes codes, scales;

  explicit Mxfp4Decoder(const Weight& weight) : codes(weight.data), scales(weight.scales) {}
  __device__ float operator()(std::int64_t row, std::int64_t k) const {
    return __fmul_rn(e2m1_value(low_first(codes, row, k)), e8m0_decode(scales.at(row, k / 32)));
  }
};

struct Nf4Decoder {
  Bytes codes;
  WeightPart<float> scales;

  explicit Nf4Decoder(const Weight& weight) : codes(weight.data), scales(weight.scales) {}
  __device__ float operator()(std::int64_t row, std::int64_t k) const {
    return __fmul_rn(kNf4Table[high_first(codes, row, k)], scales.at(row, k / 64));
  }
};

struct Int4Decoder {
  Bytes codes;
  FloatScales scales;
  Bytes zeros;  // no data: the zero point is 8
  Groups groups;

  explicit Int4Decoder(const Weight& weight)
      : codes(weight.data), scales(weight.scales), zeros(weight.zeros), groups(weight.group) {}
  __device__ float operator()(std::int64_t row, std::int64_t k) const {
    const std::int64_t block = groups.block_of(k);
    const int zero = zeros.data ? zeros.at(row, block) : quant::kInt4Zero;
    const int code = static_cast<int>(low_first(codes, row, k));
    return __fmul_rn(static_cast<float>(code - zero), scales.at(row, block));
  }
};

struct Int8Decoder {
  WeightPart<std::int8_t> codes;
  FloatScales scales;
  WeightPart<std::int8_t> zeros;  // no data: the zero point is 0
  Groups groups;

  explicit Int8Decoder(const Weight& weight)
      : codes(weight.data), scales(weight.scales), zeros(weight.zeros), groups(weight.group) {}
  __device__ float operator()(std::int64_t row, std::int64_t k) const {
    const std::int64_t block = groups.block_of(k);
    const int zero = zeros.data ? zeros.at(row, block) : 0;
    return __fmul_rn(static_cast<float>(codes.at(row, k) - zero), scales.at(row, block));
  }
};

struct Fp8Decoder {
  Bytes codes;
  WeightPart<float> scales;  // one for each row

  explicit Fp8Decoder(const Weight& weight) : codes(weight.data), scales(weight.scales) {}
  __device__ float operator()(std::int64_t row, std::int64_t k) const {
    return __fmul_rn(e4m3_decode(codes.at(row, k)), scales.at(row, 0));
  }
};

// Calls fn(decoder) with the decoder of the weight: published layout, checked.
template <typename F>
void with_decoder(const Weight& weight, F&& fn) {
  switch (weight.format) {
    case Format::dense:
      return with_float_type(weight.data.dtype,
                             [&](auto type) { fn(DenseDecoder<decltype(type)>(weight)); });
    case Format::nvfp4:
      return fn(Nvfp4Decoder(weight));
    case Format::mxfp4:
      return fn(Mxfp4Decoder(weight));
    case Format::nf4:
      return fn(Nf4Decoder(weight));
    case Format::int4:
      return fn(Int4Decoder(weight));
    case Format::int8:
      return fn(Int8Decoder(weight));
    case Format::fp8:
      return fn(Fp8Decoder(weight));
  }
}

}  // namespace tessera::cuda
