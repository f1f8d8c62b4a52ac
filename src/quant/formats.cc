// The one table of number formats, and what follows from it.
#include <fmt/format.h>

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/checked.h"
#include "quant/codec.h"
#include "quant/format_table.h"
#include "quant/fp8.h"
#include "quant/int4.h"
#include "quant/int8.h"
#include "quant/mxfp4.h"
#include "quant/nf4.h"
#include "quant/nvfp4.h"
#include "tessera/weight.h"

namespace tessera {
namespace {

using quant::FormatEntry;
using quant::StoredForm;

constexpr std::string_view kCompressed = "compressed-tensors", kModelOpt = "modelopt",
                           kOwn = "tessera";

constexpr StoredForm kNvfp4[] = {
    {.method = kCompressed,
     .name = "nvfp4-pack-quantized",
     .type = "float",
     .codes = "weight_packed",
     .tensor_scale = "weight_global_scale",
     .divides = true},
    {.method = kModelOpt,
     .name = "NVFP4",
     .type = "float",
     .codes = "weight",
     .tensor_scale = "weight_scale_2"},
    {.method = kModelOpt,
     .name = "W4A16_NVFP4",
     .type = "float",
     .codes = "weight",
     .tensor_scale = "weight_scale_2"},
};
constexpr StoredForm kMxfp4[] = {{.method = kCompressed,
                                  .name = "mxfp4-pack-quantized",
                                  .type = "float",
                                  .codes = "weight_packed"}};
constexpr StoredForm kNf4[] = {{.method = kOwn,
                                .name = "nf4-pack-quantized",
                                .type = "normal-float",
                                .codes = "weight_packed"}};
constexpr StoredForm kInt4[] = {{.method = kCompressed,
                                 .name = "pack-quantized",
                                 .type = "int",
                                 .codes = "weight_packed",
                                 .words = true}};
// int-quantized is for products with 8-bit activations: it is read, not written.
constexpr StoredForm kInt8[] = {
    {.method = kCompressed,
     .name = "pack-quantized",
     .type = "int",
     .codes = "weight_packed",
     .words = true},
    {.method = kCompressed, .name = "int-quantized", .type = "int", .codes = "weight"},
};
constexpr StoredForm kFp8[] = {
    {.method = kCompressed, .name = "float-quantized", .type = "float", .codes = "weight"},
    {.method = kModelOpt, .name = "FP8", .type = "float", .codes = "weight"},
    {.method = kModelOpt, .name = "FP8_PER_CHANNEL_PER_TOKEN", .type = "float", .codes = "weight"},
};

// In the order of the enum, so that a format is its own index.
constexpr FormatEntry kFormats[] = {
    {.info = {Format::dense, "dense", 0, 0, DType::f32, "f32, f16 or bf16 weights, as they are"},
     .code_dtype = DType::u8},
    {.info = {Format::nvfp4, "nvfp4", 4, 16, DType::f8e4m3,
              "E2M1 codes, an E4M3 scale for each 16, one f32 scale for all"},
     .code_dtype = DType::u8,
     .tensor_scale = quant::nvfp4_tensor_scale,
     .decode_row = quant::nvfp4_decode_row,
     .encode_row = quant::nvfp4_encode_row,
     .stored = kNvfp4,
     .suggested = true},
    {.info = {Format::mxfp4, "mxfp4", 4, 32, DType::u8,
              "E2M1 codes, a power of two (E8M0) for each 32"},
     .code_dtype = DType::u8,
     .decode_row = quant::mxfp4_decode_row,
     .encode_row = quant::mxfp4_encode_row,
     .stored = kMxfp4},
    {.info = {Format::nf4, "nf4", 4, 64, DType::f32,
              "codes of the normal-float table, an f32 for each 64"},
     .code_dtype = DType::u8,
     .decode_row = quant::nf4_decode_row,
     .encode_row = quant::nf4_encode_row,
     .stored = kNf4},
    {.info = {Format::int4, "int4", 4, 128, DType::bf16,
              "codes 0..15 about 8 or a zero point, a float scale for each row or group"},
     .code_dtype = DType::u8,
     .group_step = 16,
     .float_scales = true,
     .zeros = true,
     .decode_row = quant::int4_decode_row,
     .encode_row = quant::int4_encode_row,
     .stored = kInt4},
    {.info = {Format::int8, "int8", 8, 0, DType::f32,
              "codes -128..127 about 0 or a zero point, a float scale for each row or group"},
     .code_dtype = DType::i8,
     .group_step = 1,
     .float_scales = true,
     .zeros = true,
     .decode_row = quant::int8_decode_row,
     .encode_row = quant::int8_encode_row,
     .stored = kInt8,
     .suggested = true},
    {.info = {Format::fp8, "fp8", 8, 0, DType::f32, "E4M3 codes, an f32 scale for each row"},
     .code_dtype = DType::f8e4m3,
     .decode_row = quant::fp8_decode_row,
     .encode_row = quant::fp8_encode_row,
     .stored = kFp8},
};
constexpr std::size_t kCount = std::size(kFormats);

constexpr bool in_order() {
  int i = 0;
  for (const FormatEntry& entry : kFormats) {
    if (static_cast<int>(entry.info.format) != i++) return false;
  }
  return true;
}
static_assert(in_order());

// What the public header shows of the table.
constexpr auto kInfos = [] {
  std::array<FormatInfo, kCount> infos{};
  for (std::size_t i = 0; i < kCount; ++i) infos[i] = kFormats[i].info;
  return infos;
}();

}  // namespace

namespace quant {

const FormatEntry& entry(Format format) {
  const auto index = static_cast<std::size_t>(format);
  if (index >= kCount) {
    fail(ErrorCode::invalid_argument, "{} is not the number of a format; the last is {} ({})",
         index, kCount - 1, kInfos.back().name);
  }
  return kFormats[index];
}

std::span<const FormatEntry> packed_formats() { return std::span(kFormats).subspan(1); }

std::string names_of(bool (*holds)(const FormatEntry& entry)) {
  std::vector<std::string_view> names;
  for (const FormatEntry& entry : packed_formats()) {
    if (holds(entry)) names.push_back(entry.info.name);
  }
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += names[i];
  }
  return text;
}

}  // namespace quant

std::span<const FormatInfo> formats() { return std::span(kInfos).subspan(1); }

const FormatInfo& info(Format format) {
  return kInfos[static_cast<std::size_t>(quant::entry(format).info.format)];
}

std::string_view name(Format format) { return info(format).name; }

Format parse_format(std::string_view name) {
  std::string names;
  for (const FormatInfo& entry : kInfos) {
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
  const std::int64_t tensor_scale_bytes = quant::entry(format).tensor_scale ? sizeof(float) : 0;
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

DType code_dtype(Format format) { return entry(format).code_dtype; }

std::int64_t row_bytes(Format format, std::int64_t in_features) {
  return ceil_div(checked_mul(in_features, info(format).bits), 8);
}

std::int64_t blocks_of_row(std::int64_t group, std::int64_t in_features) {
  if (group == 0) return 1;
  return in_features / group + (in_features % group != 0);  // a group can be near 2^63
}

bool takes_float_scales(Format format) { return entry(format).float_scales; }

bool takes_zeros(Format format) { return entry(format).zeros; }

bool accepts_group(Format format, std::int64_t group) {
  const FormatEntry& of = entry(format);
  if (of.group_step == 0) return group == of.info.default_group;
  return group >= 0 && group % of.group_step == 0;
}

std::string accepted_groups(Format format) {
  const FormatEntry& of = entry(format);
  if (of.group_step == 0) return std::to_string(of.info.default_group);
  if (of.group_step == 1) return "0 (the whole row) or any positive number";
  return fmt::format("0 (the whole row) or a multiple of {}", of.group_step);
}

}  // namespace quant
}  // namespace tessera
