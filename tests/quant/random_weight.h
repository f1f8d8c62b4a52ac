// Packed weights as files may hold them: random codes, scales and zero points, in every variant
// that published checkpoints use. quantize() would not make such weights.
#pragma once

#include <string>
#include <vector>

#include "quant/codec.h"
#include "reference/test_tensor.h"
#include "tessera/weight.h"

namespace tessera::test {

struct PublishedCase {
  Format format;
  std::int64_t group;
  DType scales;
  bool zeros = false;

  std::string text() const {
    return std::string(name(format)) + " group " + std::to_string(group) + " scales " +
           std::string(name(scales)) + (zeros ? " zeros" : "");
  }
};

inline std::vector<PublishedCase> published_cases() {
  std::vector<PublishedCase> all;
  for (const FormatInfo& format : formats()) {
    all.push_back({format.format, format.default_group, format.scale_dtype});
  }
  const PublishedCase variants[] = {
      {Format::int4, 0, DType::f32, true},    {Format::int4, 16, DType::bf16, true},
      {Format::int4, 32, DType::f16},         {Format::int4, 48, DType::f32},
      {Format::int4, 64, DType::bf16, true},  {Format::int4, 128, DType::f32},
      {Format::int4, 128, DType::f16, true},  {Format::int8, 0, DType::bf16},
      {Format::int8, 0, DType::f16, true},    {Format::int8, 7, DType::f32, true},
      {Format::int8, 32, DType::f16},         {Format::int8, 96, DType::f32},
      {Format::int8, 128, DType::bf16, true},
  };
  all.insert(all.end(), std::begin(variants), std::end(variants));
  return all;
}

struct RandomWeight {
  TestTensor data, scales, zeros;
  Weight weight;

  RandomWeight(Context& ctx, const PublishedCase& how, std::int64_t out, std::int64_t in,
               Layout layout = Layout::contiguous)
      : data(ctx, codes(how, out, in), code_storage(how.format), layout),
        scales(ctx, scale_values(how, out, in), scale_storage(how), layout),
        zeros(ctx, zero_values(how, out, in), code_storage(how.format), layout) {
    weight.format = how.format;
    weight.out_features = out;
    weight.in_features = in;
    weight.group = how.group;
    weight.data = data;
    weight.data.dtype = quant::code_dtype(how.format);
    weight.scales = scales;
    weight.scales.dtype = how.scales;
    if (how.zeros) weight.zeros = zeros;
    if (how.format == Format::nvfp4) weight.tensor_scale = 0.0123f;
  }

 private:
  // E4M3 is made as bytes, so that every code can occur.
  static DType code_storage(Format format) {
    return format == Format::int8 ? DType::i8 : DType::u8;
  }
  static DType scale_storage(const PublishedCase& how) {
    return how.scales == DType::f8e4m3 ? DType::u8 : how.scales;
  }
  static Array codes(const PublishedCase& how, std::int64_t out, std::int64_t in) {
    const std::vector<std::int64_t> shape = {out, quant::row_bytes(how.format, in)};
    if (how.format == Format::int8) return random_integers(shape, 1, -128, 128);
    return random_integers(shape, 1, 0, how.format == Format::fp8 ? 0x7f : 256);  // 0x7f is NaN
  }
  static std::vector<std::int64_t> blocks(const PublishedCase& how, std::int64_t out,
                                          std::int64_t in) {
    return {out, quant::blocks_of_row(how.group, in)};
  }
  static Array scale_values(const PublishedCase& how, std::int64_t out, std::int64_t in) {
    if (how.format == Format::nvfp4) return random_integers(blocks(how, out, in), 2, 0, 0x7f);
    if (how.format == Format::mxfp4) return random_integers(blocks(how, out, in), 2, 0, 253);
    return random_normal(blocks(how, out, in), 2);
  }
  static Array zero_values(const PublishedCase& how, std::int64_t out, std::int64_t in) {
    const bool wide = how.format == Format::int8;
    return random_integers(blocks(how, out, in), 3, wide ? -128 : 0, wide ? 128 : 16);
  }
};

}  // namespace tessera::test
