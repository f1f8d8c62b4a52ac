// A matrix of weights, dense or packed. linear() takes either.
//
//   out[m, n] = sum over k of x[m, k] * W[n, k]        W is [out_features, in_features]
//
// Packed formats store one code per weight and one scale per block of `group` consecutive weights
// of a row. If the block does not divide a row's length, the row ends in a shorter block. A row
// with an odd number of 4-bit codes ends in half a byte of zero bits.
//
// Threads: a value, as safe as an int. Any number of ops may read its memory.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tessera/buffer.h"
#include "tessera/tensor.h"

namespace tessera {

enum class Format : std::uint8_t { dense, nvfp4, mxfp4, nf4, int4, int8, fp8 };

//  format  code                block            scale of a block       value of a code
//  nvfp4   E2M1, low first     16               E4M3, times one f32    e2m1 * scale * tensor_scale
//  mxfp4   E2M1, low first     32               E8M0 (power of two)    e2m1 * scale
//  nf4     table, high first   64               f32 (largest value)    table * scale
//  int4    0..15, low first    row, or 16 * n   bf16, f16, f32         (code - zero) * scale
//  int8    two's complement    row, or any      f32, bf16, f16         (code - zero) * scale
//  fp8     E4M3                row              f32                    e4m3 * scale
//
// "low first": of two codes in a byte, the low four bits hold the one with the lower index. Zero
// points are optional codes, one for each scale: u8 in 0..15 for int4 (8 without them), i8 in
// -128..127 for int8 (0 without them). If a format takes scales of several dtypes, quantize() makes
// the first. On the CPU, whole rows and groups that are a multiple of 32 have a faster layout for
// int4 and int8; other groups run on the published one, slower.
//
// Data and scales need only the alignment of their elements, so that a weight can point into a
// mapped file: none for bytes, 2 bytes for f16 and bf16, 4 for f32.
struct FormatInfo {
  Format format;
  std::string_view name;
  int bits;           // of one code
  int default_group;  // weights that share a scale; 0: the whole row
  DType scale_dtype;  // of quantize(); u8 for E8M0
  std::string_view summary;
};

std::span<const FormatInfo> formats();  // the packed ones, in the order above
const FormatInfo& info(Format format);
std::string_view name(Format format);
// Throws with the list of names if there is no such format.
Format parse_format(std::string_view name);

enum class WeightLayout : std::uint8_t {
  published,   // rows as checkpoints store them
  cpu_tiles,   // sixteen rows interleaved, for the CPU's integer kernels
  cuda_tiles,  // in the order of a GPU's tensor cores; made by prepare(), constant from then on
};

struct Weight {
  Format format = Format::dense;
  WeightLayout layout = WeightLayout::published;
  std::int64_t out_features = 0;
  std::int64_t in_features = 0;
  std::int64_t group = 0;  // weights that share a scale; 0: the whole row
  Tensor data{};    // dense: f32, f16, bf16 [out, in]; packed: u8, i8 or f8e4m3 [out, row bytes]
  Tensor scales{};  // [out, blocks of a row]
  Tensor zeros{};   // int4 and int8, optional: [out, blocks of a row], the code that means 0
  Tensor row_scales{};       // cuda_tiles only: f32, a factor for the sums of each row
  float tensor_scale = 1.f;  // nvfp4 only
  // Dense only: all writes to it have ended, and nothing writes to it from now on. A GPU may then
  // read it before earlier kernels have ended. load_model() sets it for a model's weights.
  bool constant = false;

  static Weight dense(const Tensor& matrix);
  bool defined() const { return data.defined(); }
  // Bytes of codes, scales, zero points and tensor scale together.
  std::int64_t bytes() const;
};

// "nvfp4[4096, 1024]"
std::string to_string(const Weight& weight);

// A Weight and the memory it points into.
struct PackedWeight {
  Weight weight{};
  Buffer storage{};
};

}  // namespace tessera
