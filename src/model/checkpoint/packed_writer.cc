#include "model/checkpoint/packed_writer.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "core/checked.h"
#include "core/fail.h"
#include "model/checkpoint/safetensors_dtype.h"
#include "quant/codec.h"
#include "quant/format_table.h"

namespace tessera::model {
namespace {

constexpr std::int64_t kWrittenWord = 4;
// 8-bit codes are stored with 128 added: two's complement with its highest bit flipped.
constexpr unsigned kInt8Flip = 0x80;

// `tessera quantize` writes the first form of a format.
const quant::StoredForm& written_form(Format format) { return quant::entry(format).stored.front(); }

bool is_words(Format format) { return written_form(format).words; }

std::int64_t words_for(std::int64_t codes, Format format) {
  return ceil_div(checked_mul(codes, info(format).bits), 8 * kWrittenWord);
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

std::vector<TensorToWrite> tensors_to_write(const std::string& module, const Weight& weight) {
  std::vector<TensorToWrite> tensors;
  const auto add = [&](std::string_view part, std::string_view dtype,
                       std::vector<std::int64_t> shape) {
    tensors.push_back(
        {fmt::format("{}.{}", module, part), std::string(dtype), std::move(shape), {}});
  };
  const std::int64_t out = weight.out_features, blocks = weight.scales.shape[1];
  if (is_words(weight.format)) {
    add("weight_packed", "I32", {out, words_for(weight.in_features, weight.format)});
  } else {
    add(written_form(weight.format).codes, spelled(weight.data.dtype), {out, weight.data.shape[1]});
  }
  add("weight_scale", spelled(weight.scales.dtype), {out, blocks});
  const std::string_view tensor_scale = written_form(weight.format).tensor_scale;
  if (!tensor_scale.empty()) add(tensor_scale, "F32", {1});
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
Bytes copied_bytes(const std::vector<T>& values) {
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
  const std::int64_t row_bytes = words_for(weight.in_features, weight.format) * kWrittenWord;
  Bytes bytes = rows_of(weight.data, row_bytes);
  if (weight.format == Format::int8) {  // padding stays zero
    for (std::int64_t row = 0; row < weight.out_features; ++row) {
      for (std::int64_t k = 0; k < weight.in_features; ++k) {
        bytes[static_cast<std::size_t>(row * row_bytes + k)] ^= std::byte{kInt8Flip};
      }
    }
  }
  return bytes;
}

// Packed along the rows: word [w, block] holds the zero points of rows w * n .. w * n + n - 1.
Bytes zero_words(const Weight& weight) {
  const int bits = info(weight.format).bits;
  const std::int64_t per_word = 8 * kWrittenWord / bits, blocks = weight.zeros.shape[1];
  const unsigned flipped = weight.format == Format::int8 ? kInt8Flip : 0;
  std::vector<std::uint32_t> words(
      static_cast<std::size_t>(words_for(weight.out_features, weight.format) * blocks));
  for (std::int64_t row = 0; row < weight.out_features; ++row) {
    const auto* zeros = weight.zeros.ptr<const std::uint8_t>() + row * weight.zeros.strides[0];
    for (std::int64_t block = 0; block < blocks; ++block) {
      words[static_cast<std::size_t>(row / per_word * blocks + block)] |=
          (zeros[block] ^ flipped) << (row % per_word * bits);
    }
  }
  return copied_bytes(words);
}

}  // namespace

std::vector<TensorToWrite> packed_tensors(const std::string& module, const QuantizeOptions& options,
                                          std::int64_t out_features, std::int64_t in_features) {
  return tensors_to_write(module, planned(options, out_features, in_features));
}

PackedTensors pack_tensors(const std::string& module, const Weight& weight) {
  PackedTensors packed{tensors_to_write(module, weight), {}};
  packed.storage.push_back(is_words(weight.format) ? code_words(weight) : rows_of(weight.data));
  packed.storage.push_back(rows_of(weight.scales));
  const quant::StoredForm& form = written_form(weight.format);
  if (!form.tensor_scale.empty()) {
    const float scale = form.divides ? 1.f / weight.tensor_scale : weight.tensor_scale;
    packed.storage.push_back(copied_bytes(std::vector<float>{scale}));
  }
  if (is_words(weight.format)) {
    if (weight.zeros.defined()) packed.storage.push_back(zero_words(weight));
    packed.storage.push_back(
        copied_bytes(std::vector<std::int64_t>{weight.out_features, weight.in_features}));
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
  if (options.format == Format::dense) {
    fail(ErrorCode::invalid_argument, "dense weights need no quantization_config");
  }
  const quant::StoredForm& form = written_form(options.format);
  // tensor_group: a scale for the tensor and one for each group.
  const char* in_groups = form.tensor_scale.empty() ? "group" : "tensor_group";
  const Json weights = {{"num_bits", format.bits},
                        {"type", form.type},
                        {"symmetric", !options.zero_point},
                        {"strategy", group == 0 ? "channel" : in_groups},
                        {"group_size", group == 0 ? Json(nullptr) : Json(group)},
                        {"dynamic", false}};
  Json targets = Json::array({"Linear"});
  if (config.embedding) targets.push_back("Embedding");
  const Json scheme = {{"format", form.name},
                       {"input_activations", nullptr},
                       {"output_activations", nullptr},
                       {"targets", targets},
                       {"weights", weights}};
  return {{"quant_method", form.method}, {"quantization_status", "compressed"},
          {"format", form.name},         {"config_groups", {{"group_0", scheme}}},
          {"ignore", config.ignore},     {"kv_cache_scheme", nullptr}};
}

}  // namespace tessera::model
