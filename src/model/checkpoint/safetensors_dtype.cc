#include "model/checkpoint/safetensors_dtype.h"

#include <array>

namespace tessera::model {
namespace {

constexpr std::array kDTypes = std::to_array<SafetensorsDType>({
    {"F64", 64, {}},
    {"F32", 32, DType::f32},
    {"F16", 16, DType::f16},
    {"BF16", 16, DType::bf16},
    {"I64", 64, DType::i64},
    {"I32", 32, DType::i32},
    {"I16", 16, {}},
    {"I8", 8, DType::i8},
    {"U64", 64, {}},
    {"U32", 32, {}},
    {"U16", 16, {}},
    {"U8", 8, DType::u8},
    {"BOOL", 8, {}},
    {"C64", 64, {}},
    {"F8_E4M3", 8, DType::f8e4m3},
    {"F8_E5M2", 8, {}},
    {"F8_E8M0", 8, DType::u8},  // just an exponent: scales that are bytes to us
    {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"F4", 4, {}},
});

}  // namespace

const SafetensorsDType* find_safetensors_dtype(std::string_view name) {
  for (const SafetensorsDType& dtype : kDTypes) {
    if (dtype.name == name) return &dtype;
  }
  return nullptr;
}

std::string_view spelled(DType dtype) {
  for (const SafetensorsDType& known : kDTypes) {
    if (known.dtype == dtype) return known.name;
  }
  return "";
}

}  // namespace tessera::model
