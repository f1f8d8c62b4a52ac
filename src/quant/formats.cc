// The one table of number formats, and what follows from it.
#include <fmt/format.h>

#include <string>

#include "core/checked.h"
#include "quant/codec.h"
#include "tessera/weight.h"

namespace tessera {
namespace {

// In the order of the enum, so that a format is its own index.
constexpr FormatInfo kFormats[] = {
    {Format::dense, "dense", 0, 0, DType::f32, "f32, f16 or bf16 weights, as they are"},
    {Format::nvfp4, "nvfp4", 4, 16, DType::f8e4m3,
     "E2M1 codes, an E4M3 scale for each 16, one f32 scale for all"},
    {Format::mxfp4, "mxfp4", 4, 32, DType::u8, "E2M1 codes, a power of two (E8M0) for each 32"},
    {Format::nf4, "nf4", 4, 64, DType::f32, "codes of the normal-float table, an f32 for each 64"},
    {Format::int4, "int4", 4, 128, DType::bf16,
     "codes 0..15 about 8 or a zero point, a float scale for each row or group"},
    {Format::int8, "int8", 8, 0, DType::f32,
     "codes -128..127 about 0 or a zero point, a float scale for each row or group"},
    {Format::fp8, "fp8", 8, 0, DType::f32, "E4M3 codes, an f32 scale for each row"},
};

constexpr bool in_order() {
  int i = 0;
  for (const FormatInfo& entry : kFormats) {
    if (static_cast<int>(entry.format) != i++) return false;
  }
  return true;
}
static_assert(in_order());

}  // namespace

std::span<const FormatInfo> formats() { return std::span(kFormats).subspan(1); }

const FormatInfo& info(Format format) {
  const auto index = static_cast<std::size_t>(format);
  if (index >= std::size(kFormats)) {
    fail(ErrorCode::invalid_argument, "{} is not the number of a format; the last is {} ({})",
         index, std::size(kFormats) - 1, std::rbegin(kFormats)->name);
  }
  return kFormats[index];
}

std::string_view name(Format format) { return info(format).name; }

Format parse_format(std::string_view name) {
  std::string names;
  for (const FormatInfo& entry : kFormats) {
    if (entry.name == name) return entry.format;
    names.append(names.empty() ? "" : ", ").append(entry.name);
  }
  fail(ErrorCode::invalid_argument, "'{}' is not a format; use one of {}", name, names);
}

Weight Weight::dense(const Tensor& matrix) {
  if (matrix.rank != 2) {
    fail(ErrorCode::invalid_argument, "a weight is a matrix [out, in], got {}", to_string(matrix));
  }
  Weight weight;
  weight.out_features = matrix.shape[0];
  weight.in_features = matrix.shape[1];
  weight.data = matrix;
  return weight;
}

std::int64_t Weight::bytes() const {
  const std::int64_t tensor_scale_bytes = format == Format::nvfp4 ? sizeof(tensor_scale) : 0;
  return checked_add(
      checked_add(data.bytes(), scales.bytes()),
      checked_add(checked_add(zeros.bytes(), row_scales.bytes()), tensor_scale_bytes));
}

std::string to_string(const Weight& weight) {
  const std::string_view type =
      weight.format == Format::dense ? name(weight.data.dtype) : name(weight.format);
  return fmt::format("{}[{}, {}]", type, weight.out_features, weight.in_features);
}

namespace quant {

DType code_dtype(Format format) {
  switch (format) {
    case Format::int8:
      return DType::i8;
    case Format::fp8:
      return DType::f8e4m3;
    default:
      return DType::u8;
  }
}

std::int64_t row_bytes(Format format, std::int64_t in_features) {
  return ceil_div(checked_mul(in_features, info(format).bits), 8);
}

std::int64_t blocks_of_row(std::int64_t group, std::int64_t in_features) {
  if (group == 0) return 1;
  return in_features / group + (in_features % group != 0);  // a group can be near 2^63
}

bool takes_float_scales(Format format) { return format == Format::int4 || format == Format::int8; }

bool takes_zeros(Format format) { return format == Format::int4 || format == Format::int8; }

bool accepts_group(Format format, std::int64_t group) {
  switch (format) {
    case Format::int4:
      return group >= 0 && group % 16 == 0;
    case Format::int8:
      return group >= 0;
    default:
      return group == info(format).default_group;
  }
}

std::string accepted_groups(Format format) {
  switch (format) {
    case Format::int4:
      return "0 (the whole row) or a multiple of 16";
    case Format::int8:
      return "0 (the whole row) or any positive number";
    default:
      return std::to_string(info(format).default_group);
  }
}

}  // namespace quant
}  // namespace tessera
