#include "model/checkpoint/packed_writer.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "core/checked.h"
#include "core/fail.h"
#include "quant/codec.h"

namespace tessera::model {
namespace {

constexpr std::int64_t kWordBytes = 4;
// 8-bit codes are stored with 128 added: two's complement with its highest bit flipped.
constexpr unsigned kInt8Offset = 0x80;

std::string_view spelled(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "F32";
    case DType::f16:
      return "F16";
    case DType::bf16:
      return "BF16";
    case DType::f8e4m3:
      return "F8_E4M3";
    case DType::i8:
      return "I8";
    case DType::u8:
      return "U8";
    case DType::i32:
      return "I32";
    case DType::i64:
      return "I64";
  }
  return "";
}

bool is_words(Format format) { return format == Format::int4 || format == Format::int8; }

std::int64_t words_for(std::int64_t codes, Format format) {
  return ceil_div(checked_mul(codes, info(format).bits), 8 * kWordBytes);
}

// A weight with its sizes and dtypes; its tensors have no memory.
Weight planned(const QuantizeOptions& options, std::int64_t out, std::int64_t in) {
  const FormatInfo& format = info(options.format);
  Weight weight;
  weight.format = options.format;
  weight.out_features = out;
  weight.in_features = in;
  weight.group = options.group == -1 ? format.default_group : options.group;
  const std::int64_t blocks = quant::blocks_of_row(weight.group, in);
  weight.data = Tensor(nullptr, quant::code_dtype(options.format),
                       {out, quant::row_bytes(options.format, in)});
  weight.scales = Tensor(nullptr, format.scale_dtype, {out, blocks});
  if (options.zero_point) {
    weight.zeros = Tensor(nullptr, quant::code_dtype(options.format), {out, blocks});
  }
  return weight;
}

std::vector<TensorToWrite> describe(const std::string& module, const Weight& weight) {
  std::vector<TensorToWrite> tensors;
  const auto add = [&](const char* part, std::string_view dtype, std::vector<std::int64_t> shape) {
    tensors.push_back({module + "." + part, std::string(dtype), std::move(shape), {}});
  };
  const std::int64_t out = weight.out_features, blocks = weight.scales.shape[1];
  if (is_words(weight.format)) {
    add("weight_packed", "I32", {out, words_for(weight.in_features, weight.format)});
  } else {
    add(weight.format == Format::fp8 ? "weight" : "weight_packed", spelled(weight.data.dtype),
        {out, weight.data.shape[1]});
  }
  add("weight_scale", spelled(weight.scales.dtype), {out, blocks});
  if (weight.format == Format::nvfp4) add("weight_global_scale", "F32", {1});
  if (is_words(weight.format)) {
    if (weight.zeros.defined()) {
      add("weight_zero_point", "I32", {words_for(out, weight.format), blocks});
    }
    add("weight_shape", "I64", {2});
  }
  return tensors;
}

using Bytes = std::vector<std::byte>;

template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// A matrix, each row padded with zeros to `row_bytes`.
Bytes rows_of(const Tensor& matrix, std::int64_t row_bytes) {
  Bytes bytes(static_cast<std::size_t>(checked_mul(matrix.shape[0], row_bytes)));
  const std::int64_t used = matrix.shape[1] * size_of(matrix.dtype);
  for (std::int64_t row = 0; row < matrix.shape[0]; ++row) {
    std::memcpy(bytes.data() + row * row_bytes,
                matrix.ptr<const char>() + row * matrix.strides[0] * size_of(matrix.dtype),
                static_cast<std::size_t>(used));
  }
  return bytes;
}

Bytes rows_of(const Tensor& matrix) {
  return rows_of(matrix, matrix.shape[1] * size_of(matrix.dtype));
}

Bytes code_words(const Weight& weight) {
  const std::int64_t row_bytes = words_for(weight.in_features, weight.format) * kWordBytes;
  Bytes bytes = rows_of(weight.data, row_bytes);
  if (weight.format == Format::int8) {  // padding stays zero
    for (std::int64_t row = 0; row < weight.out_features; ++row) {
      for (std::int64_t k = 0; k < weight.in_features; ++k) {
        bytes[static_cast<std::size_t>(row * row_bytes + k)] ^= std::byte{kInt8Offset};
      }
    }
  }
  return bytes;
}

// Packed along the rows: word [w, block] holds the zero points of rows w * n .. w * n + n - 1.
Bytes zero_words(const Weight& weight) {
  const int bits = info(weight.format).bits;
  const std::int64_t per_word = 8 * kWordBytes / bits, blocks = weight.zeros.shape[1];
  const unsigned flipped = weight.format == Format::int8 ? kInt8Offset : 0;
  std::vector<std::uint32_t> words(
      static_cast<std::size_t>(words_for(weight.out_features, weight.format) * blocks));
  for (std::int64_t row = 0; row < weight.out_features; ++row) {
    const auto* zeros = weight.zeros.ptr<const std::uint8_t>() + row * weight.zeros.strides[0];
    for (std::int64_t block = 0; block < blocks; ++block) {
      words[static_cast<std::size_t>(row / per_word * blocks + block)] |=
          (zeros[block] ^ flipped) << (row % per_word * bits);
    }
  }
  return bytes_of(words);
}

}  // namespace

std::vector<TensorToWrite> packed_tensors(const std::string& module, const QuantizeOptions& options,
                                          std::int64_t out_features, std::int64_t in_features) {
  return describe(module, planned(options, out_features, in_features));
}

PackedTensors pack_tensors(const std::string& module, const Weight& weight) {
  PackedTensors packed{describe(module, weight), {}};
  packed.storage.push_back(is_words(weight.format) ? code_words(weight) : rows_of(weight.data));
  packed.storage.push_back(rows_of(weight.scales));
  if (weight.format == Format::nvfp4) {
    packed.storage.push_back(bytes_of(std::vector<float>{1.f / weight.tensor_scale}));
  }
  if (is_words(weight.format)) {
    if (weight.zeros.defined()) packed.storage.push_back(zero_words(weight));
    packed.storage.push_back(
        bytes_of(std::vector<std::int64_t>{weight.out_features, weight.in_features}));
  }
  for (std::size_t i = 0; i < packed.tensors.size(); ++i) {
    packed.tensors[i].data = packed.storage[i];
  }
  return packed;
}

Json packed_config(const PackedConfig& config) {
  const QuantizeOptions& options = config.options;
  const FormatInfo& format = info(options.format);
  const std::int64_t group = options.group == -1 ? format.default_group : options.group;
  Json weights = {{"num_bits", format.bits},
                  {"type", "float"},
                  {"symmetric", !options.zero_point},
                  {"strategy", group == 0 ? "channel" : "group"},
                  {"group_size", group == 0 ? Json(nullptr) : Json(group)},
                  {"dynamic", false}};
  std::string method = "compressed-tensors", layout;
  switch (options.format) {
    case Format::nvfp4:
      layout = "nvfp4-pack-quantized";
      weights["strategy"] = "tensor_group";  // a scale for the tensor and one for each group
      break;
    case Format::mxfp4:
      layout = "mxfp4-pack-quantized";
      break;
    case Format::nf4:
      method = "tessera";
      layout = "nf4-pack-quantized";
      weights["type"] = "normal-float";
      break;
    case Format::int4:
    case Format::int8:  // not int-quantized: that is for products with 8-bit activations
      layout = "pack-quantized";
      weights["type"] = "int";
      break;
    case Format::fp8:
      layout = "float-quantized";
      break;
    case Format::dense:
      fail(ErrorCode::invalid_argument, "dense weights need no quantization_config");
  }
  Json targets = Json::array({"Linear"});
  if (config.embedding) targets.push_back("Embedding");
  const Json scheme = {{"format", layout},
                       {"input_activations", nullptr},
                       {"output_activations", nullptr},
                       {"targets", targets},
                       {"weights", weights}};
  return {{"quant_method", method},  {"quantization_status", "compressed"},
          {"format", layout},        {"config_groups", {{"group_0", scheme}}},
          {"ignore", config.ignore}, {"kv_cache_scheme", nullptr}};
}

}  // namespace tessera::model
