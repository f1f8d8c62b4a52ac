#include "names.h"

#include <charconv>

#include "call.h"

namespace tessera::python {
namespace {

using nanobind::dlpack::dtype_code;

struct DTypeRow {
  DType dtype;
  nanobind::dlpack::dtype dlpack;
  const char* numpy;
};

constexpr nanobind::dlpack::dtype make(dtype_code code, std::uint8_t bits) {
  return {static_cast<std::uint8_t>(code), bits, 1};
}

constexpr DTypeRow kDTypes[] = {
    {DType::f32, make(dtype_code::Float, 32), "float32"},
    {DType::f16, make(dtype_code::Float, 16), "float16"},
    {DType::bf16, make(dtype_code::Bfloat, 16), nullptr},
    {DType::f8e4m3, make(dtype_code::Float8_E4M3FN, 8), nullptr},
    {DType::i8, make(dtype_code::Int, 8), "int8"},
    {DType::u8, make(dtype_code::UInt, 8), "uint8"},
    {DType::i32, make(dtype_code::Int, 32), "int32"},
    {DType::i64, make(dtype_code::Int, 64), "int64"},
};

const DTypeRow& row(DType dtype) {
  for (const DTypeRow& entry : kDTypes) {
    if (entry.dtype == dtype) return entry;
  }
  refuse("this dtype is not known");
}

// As numpy and torch call it: "float64".
std::string text_of(nanobind::dlpack::dtype dtype) {
  constexpr const char* kKinds[] = {"int", "uint", "float", nullptr, "bfloat", "complex"};
  if (dtype.code == static_cast<std::uint8_t>(dtype_code::Bool)) return "bool";
  if (dtype.code < std::size(kKinds) && kKinds[dtype.code] != nullptr && dtype.lanes == 1) {
    return kKinds[dtype.code] + std::to_string(dtype.bits);
  }
  return "of a type that Tessera does not know (DLPack type code " + std::to_string(dtype.code) +
         ", " + std::to_string(dtype.bits) + " bits)";
}

[[noreturn]] void refuse_name(std::string_view what, std::string_view text,
                              std::string_view accepted) {
  refuse(std::string(what) + " '" + std::string(text) +
         "' is not known; give one of: " + std::string(accepted));
}

}  // namespace

nanobind::dlpack::dtype dlpack_dtype(DType dtype) { return row(dtype).dlpack; }

DType dtype_from_dlpack(nanobind::dlpack::dtype dtype, const std::string& where) {
  for (const DTypeRow& entry : kDTypes) {
    if (entry.dlpack == dtype) return entry.dtype;
  }
  refuse(where + " is " + text_of(dtype) +
         "; Tessera takes float32, float16, bfloat16, float8_e4m3fn, int8, uint8, int32, int64");
}

const char* numpy_name(DType dtype) { return row(dtype).numpy; }

DType parse_dtype(std::string_view text) {
  std::string names;
  for (const DTypeRow& entry : kDTypes) {
    if (tessera::name(entry.dtype) == text) return entry.dtype;
    names += (names.empty() ? "" : ", ") + std::string(tessera::name(entry.dtype));
  }
  refuse_name("dtype", text, names);
}

DType parse_cache_dtype(std::string_view text) {
  if (text == "fp8") return DType::f8e4m3;
  return text == "int8" ? DType::i8 : parse_dtype(text);
}

Device parse_device(std::string_view text) {
  if (text == "cpu") return Device::cpu();
  if (text == "cuda") return Device::cuda(0);
  if (text.starts_with("cuda:")) {
    const std::string_view digits = text.substr(5);
    std::int32_t index = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (error == std::errc() && end == digits.data() + digits.size() && index >= 0) {
      return Device::cuda(index);
    }
  }
  if (text == "auto") {
    for (const DeviceInfo& info : devices()) {
      if (info.device.is_cuda() && info.usable()) return info.device;
    }
    return Device::cpu();
  }
  refuse_name("device", text, "cpu, cuda, cuda:N, auto");
}

Activation parse_activation(std::string_view text) {
  std::string names;
  for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu,
                                      Activation::gelu_tanh, Activation::silu}) {
    if (tessera::name(activation) == text) return activation;
    names += (names.empty() ? "" : ", ") + std::string(tessera::name(activation));
  }
  refuse_name("activation", text, names);
}

RopeStyle parse_rope_style(std::string_view text) {
  for (const RopeStyle style : {RopeStyle::half_split, RopeStyle::interleaved}) {
    if (name(style) == text) return style;
  }
  refuse_name("style", text, "half_split, interleaved");
}

std::string_view name(RopeStyle style) {
  return style == RopeStyle::half_split ? "half_split" : "interleaved";
}

const char* name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::overflow:
      return "overflow";
    case ErrorCode::device:
      return "device";
    case ErrorCode::file:
      return "file";
    case ErrorCode::busy:
      return "busy";
  }
  return "invalid_argument";
}

}  // namespace tessera::python
