// Decodes any weight of a matrix in tiles (tile_layout.h) to f32, for reading single rows. The bits
// equal those of the decoders of cuda/quant/codec.cuh for the published layout. 16-bit scales are
// stored as f32 here, which changes no value.
#pragma once

#include <cstdint>

#include "cuda/linear/layout/tile_layout.h"
#include "cuda/quant/codec.cuh"
#include "quant/e4m3.h"
#include "quant/e8m0.h"
#include "quant/int4.h"
#include "tessera/weight.h"

namespace tessera::cuda {

class TileDecoder {
 public:
  explicit TileDecoder(const Weight& tiled)
      : format_(tiled.format),
        codes_(tiled.data.data),
        scales_(tiled.scales.data),
        zeros_(tiled.zeros.ptr<const std::uint8_t>()),
        groups_(tiled.group),
        order_(word_order(tiled.format)),
        slabs_(2 * pairs_of(tiled)),
        blocks_(tiled.scales.shape[1] / kTileHeight),
        tensor_scale_(tiled.tensor_scale) {}

  // All threads take the same branch.
  __device__ float operator()(std::int64_t row, std::int64_t k) const {
    const std::int64_t scale = tile_scale(row, groups_.block_of(k), blocks_, groups_.group);
    switch (format_) {
      case Format::nvfp4:
        return __fmul_rn(e2m1_value(nibble(row, k)),
                         __fmul_rn(e4m3_decode(byte_scale(scale)), tensor_scale_));
      case Format::mxfp4:
        return __fmul_rn(e2m1_value(nibble(row, k)), e8m0_decode(byte_scale(scale)));
      case Format::nf4:
        return __fmul_rn(kNf4Table[nibble(row, k)], float_scale(scale));
      case Format::int4: {
        const int zero = zeros_ ? zeros_[scale] : quant::kInt4Zero;
        return __fmul_rn(static_cast<float>(static_cast<int>(nibble(row, k)) - zero),
                         float_scale(scale));
      }
      case Format::int8: {  // codes have 128 added, zero points have not
        const int zero = zeros_ ? static_cast<std::int8_t>(zeros_[scale]) : 0;
        return __fmul_rn(static_cast<float>(byte(row, k) - 128 - zero), float_scale(scale));
      }
      default:
        return __fmul_rn(e4m3_decode(static_cast<std::uint8_t>(byte(row, k))), float_scale(scale));
    }
  }

 private:
  __device__ unsigned nibble(std::int64_t row, std::int64_t k) const {
    const auto* words = static_cast<const std::uint32_t*>(codes_);
    return code_at(order_, words[tile_word(row, k, slabs_)], static_cast<int>(k % 8));
  }
  __device__ int byte(std::int64_t row, std::int64_t k) const {
    return static_cast<const std::uint8_t*>(codes_)[tile_byte(row, k, slabs_)];
  }
  __device__ std::uint8_t byte_scale(std::int64_t at) const {
    return static_cast<const std::uint8_t*>(scales_)[at];
  }
  __device__ float float_scale(std::int64_t at) const {
    return static_cast<const float*>(scales_)[at];
  }

  Format format_;
  const void* codes_;
  const void* scales_;
  const std::uint8_t* zeros_;  // null: none
  Groups groups_;
  WordOrder order_;
  std::int64_t slabs_, blocks_;
  float tensor_scale_;
};

}  // namespace tessera::cuda
