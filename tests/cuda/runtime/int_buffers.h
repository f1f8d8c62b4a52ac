// Device memory of equal numbers, and what it holds later: tests of streams see by it who came
// first.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/buffer.h"
#include "tessera/context.h"

namespace tessera::test {

inline Buffer filled_buffer(Context& ctx, std::int64_t n, std::int32_t value) {
  const std::vector<std::int32_t> values(static_cast<std::size_t>(n), value);
  Buffer buffer(DType::i32, {n}, ctx.device());
  copy_bytes(ctx, buffer.data(), buffer.device(), values.data(), Device::cpu(), buffer.bytes());
  return buffer;
}

inline std::vector<std::int32_t> read_buffer(Context& ctx, const Buffer& buffer) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(buffer.bytes()) / sizeof(std::int32_t));
  copy_bytes(ctx, values.data(), Device::cpu(), buffer.data(), buffer.device(), buffer.bytes());
  ctx.synchronize();
  return values;
}

}  // namespace tessera::test
