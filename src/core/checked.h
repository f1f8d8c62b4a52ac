// Size arithmetic that throws instead of wrapping around. Every size that comes from a caller or a
// file goes through these.
#pragma once

#include <cstdint>
#include <span>

#include "core/fail.h"

namespace tessera {

inline std::int64_t checked_mul(std::int64_t a, std::int64_t b) {
  std::int64_t result;
  if (__builtin_mul_overflow(a, b, &result)) {
    fail(ErrorCode::overflow, "size {} x {} does not fit into 64 bits", a, b);
  }
  return result;
}

inline std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t result;
  if (__builtin_add_overflow(a, b, &result)) {
    fail(ErrorCode::overflow, "size {} + {} does not fit into 64 bits", a, b);
  }
  return result;
}

// Rounds up to a multiple of `alignment`.
inline std::int64_t checked_align(std::int64_t size, std::int64_t alignment) {
  return checked_add(size, alignment - 1) / alignment * alignment;
}

// Product of all sizes; refuses a negative one.
inline std::int64_t checked_product(std::span<const std::int64_t> sizes) {
  std::int64_t product = 1;
  for (std::int64_t size : sizes) {
    if (size < 0) fail(ErrorCode::invalid_argument, "size {} of a dimension is negative", size);
    product = checked_mul(product, size);
  }
  return product;
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace tessera
