// Element types. The order is part of the ABI: append only.
//
// Threads: a value, as safe as an int.
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

enum class DType : std::uint8_t { f32, f16, bf16, f8e4m3, i8, u8, i32, i64 };

// Bytes of one element.
constexpr int size_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::f8e4m3:
    case DType::i8:
    case DType::u8:
      return 1;
    case DType::i64:
      return 8;
  }
  return 0;
}

// f32, f16 and bf16: what every op computes on.
constexpr bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

// "f32", "bf16", ...
std::string_view name(DType dtype);

}  // namespace tessera
