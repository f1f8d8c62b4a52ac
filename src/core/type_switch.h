// From a DType that is known at run time to an element type that is known at compile time. It does
// not use fmt, which nvcc does not compile.
#pragma once

#include <cstdint>
#include <string>

#include "core/half.h"
#include "tessera/dtype.h"
#include "tessera/error.h"

namespace tessera {

// Calls fn(T{}) with the element type of f32, f16 or bf16.
template <typename F>
void with_float_type(DType dtype, F&& fn) {
  switch (dtype) {
    case DType::f32:
      return fn(float{});
    case DType::f16:
      return fn(Half{});
    case DType::bf16:
      return fn(BFloat16{});
    default:
      throw Error(ErrorCode::invalid_argument,
                  std::string(name(dtype)) + " is not one of f32, f16 and bf16");
  }
}

// Calls fn(T{}) with the element type of i32 or i64.
template <typename F>
void with_index_type(DType dtype, F&& fn) {
  switch (dtype) {
    case DType::i32:
      return fn(std::int32_t{});
    case DType::i64:
      return fn(std::int64_t{});
    default:
      throw Error(ErrorCode::invalid_argument,
                  std::string(name(dtype)) + " is not one of i32 and i64");
  }
}

}  // namespace tessera
