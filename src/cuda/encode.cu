// From a matrix of f32 to a packed one. Every thread encodes one block of weights, and does so by
// the very functions of src/quant that the CPU runs: the same bits. (The build turns contraction
// into fused multiply-adds off for this file, as it does for those.)
#include "cuda/encode.h"

#include "cuda/block_reduce.cuh"
#include "cuda/launch.h"
#include "quant/fp8.h"
#include "quant/int4.h"
#include "quant/int8.h"
#include "quant/mxfp4.h"
#include "quant/nf4.h"
#include "quant/nvfp4.h"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::uint32_t kInfinityBits = 0x7f800000u;

std::int64_t blocks_for(std::int64_t items) { return (items + kThreads - 1) / kThreads; }

// Magnitudes compare like their bits, and infinity and NaN lie above all numbers. A largest and a
// smallest are the same in whatever order the threads come.
__global__ void __launch_bounds__(kThreads)
    find_extremes(const float* x, std::int64_t count, ScanResult* result) {
  std::uint32_t largest = 0;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const std::uint32_t bits = __float_as_uint(x[i]) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
    if (bits >= kInfinityBits) {
      atomicMin(&result->not_finite, static_cast<unsigned long long>(i));
    }
  }
  largest = __reduce_max_sync(0xffffffffu, largest);
  if (threadIdx.x % kWarp == 0) atomicMax(&result->largest_bits, largest);
}

__device__ void encode_block(const Weight& weight, std::int64_t row, const quant::Piece& piece,
                             const float* x, ScaleSearch search) {
  switch (weight.format) {
    case Format::dense:
      return;
    case Format::nvfp4:
      return quant::nvfp4_encode_block(weight, row, piece, x, search);
    case Format::mxfp4:
      return quant::mxfp4_encode_block(weight, row, piece, x, search);
    case Format::nf4:
      return quant::nf4_encode_block(weight, row, piece, x, search);
    case Format::int4:
      return quant::int4_encode_block(weight, row, piece, x, search);
    case Format::int8:
      return quant::int8_encode_block(weight, row, piece, x, search);
    case Format::fp8:
      return quant::fp8_encode_block(weight, row, piece, x, search);
  }
}

__global__ void __launch_bounds__(kThreads)
    encode_each(const float* x, Weight weight, ScaleSearch search) {
  const std::int64_t columns = weight.in_features, blocks = weight.scales.shape[1];
  const std::int64_t group = weight.group == 0 ? columns : weight.group;
  const std::int64_t total = weight.out_features * blocks;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < total; i += step) {
    const std::int64_t row = i / blocks, block = i % blocks, begin = block * group;
    const std::int64_t end = columns - begin < group ? columns : begin + group;
    encode_block(weight, row, {block, begin, end}, x + row * columns, search);
  }
}

}  // namespace

void scan_elements(Context& ctx, const Tensor& x, ScanResult* result) {
  const Launch launch(ctx, "quantize");
  launch(find_extremes, {.blocks = blocks_for(x.numel()), .threads = kThreads},
         x.ptr<const float>(), x.numel(), result);
}

void encode_blocks(Context& ctx, const Tensor& x, const Weight& weight, ScaleSearch search) {
  const Launch launch(ctx, "quantize");
  const std::int64_t blocks = weight.scales.numel();
  launch(encode_each, {.blocks = blocks_for(blocks), .threads = kThreads}, x.ptr<const float>(),
         weight, search);
}

}  // namespace tessera::cuda
