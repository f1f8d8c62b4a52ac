// From dense weights to packed ones and back.
//
// Threads: any. A call has its Context to itself (tessera/context.h).
#pragma once

#include <cstdint>

#include "tessera/context.h"
#include "tessera/weight.h"

namespace tessera {

// How the scale of a block is found.
enum class ScaleSearch : std::uint8_t {
  least_squares,  // a short search for the scale of least squared error
  from_max,       // the largest magnitude lands on the largest code
};

struct QuantizeOptions {
  Format format = Format::nvfp4;
  // -1: the format's default. int4: 0 (a row) or a multiple of 16; int8: 0 or any.
  std::int64_t group = -1;
  // int4 only: fits the code range to the block's smallest and largest value.
  bool zero_point = false;
  ScaleSearch search = ScaleSearch::least_squares;
};

// Bytes that quantize() will store: codes, scales, zero points and tensor scale.
std::int64_t packed_bytes(const QuantizeOptions& options, std::int64_t out_features,
                          std::int64_t in_features);

// Packs a dense [out, in] matrix (f32, f16, bf16), in the published layout. Codes are rounded to
// the nearest value of the scaled grid, ties to the even code; what lies beyond the grid saturates.
// NaN and infinity are refused with their position, which means waiting for a GPU. The bits are the
// same on every device.
PackedWeight quantize(Context& ctx, const Tensor& dense, const QuantizeOptions& options = {});

// Decodes into out [out, in] of f32, f16 or bf16. Dense weights are converted. On the CPU, scales
// that are not finite are refused. A GPU decodes them to values that are not finite, because
// reporting them would mean waiting.
void dequantize(Context& ctx, const Weight& weight, const Tensor& out);

// Copies a packed weight into the layout that the kernels of this Context's device read fastest.
// Call it once, at load. Values are checked as in dequantize(). linear() accepts both layouts.
// Formats without a faster layout come back as they are.
PackedWeight prepare(Context& ctx, const Weight& weight);

}  // namespace tessera
