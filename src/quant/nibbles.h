// Rows of 4-bit codes, two to a byte.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/host_device.h"

namespace tessera::quant {

enum class NibbleOrder { low_first, high_first };

// The two values of each possible byte, in the order of the weights: one look-up decodes a pair.
using PairTable = std::array<std::array<float, 2>, 256>;

constexpr PairTable make_pair_table(const std::array<float, 16>& values, NibbleOrder order) {
  PairTable table{};
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const float low = values[byte & 15u], high = values[byte >> 4];
    if (order == NibbleOrder::low_first) {
      table[byte] = {low, high};
    } else {
      table[byte] = {high, low};
    }
  }
  return table;
}

// out[i] = (value of code begin + i - zero) * scale, for codes [begin, end) of the row.
inline void decode_nibbles(const PairTable& table, const std::uint8_t* row, std::int64_t begin,
                           std::int64_t end, float zero, float scale, float* out) {
  std::int64_t k = begin;
  if (k < end && k % 2 == 1) {
    *out++ = (table[row[k / 2]][1] - zero) * scale;
    ++k;
  }
  for (; k + 2 <= end; k += 2, out += 2) {
    const std::array<float, 2>& pair = table[row[k / 2]];
    out[0] = (pair[0] - zero) * scale;
    out[1] = (pair[1] - zero) * scale;
  }
  if (k < end) *out = (table[row[k / 2]][0] - zero) * scale;
}

// Codes [begin, end) of the row become code(begin), code(begin + 1), ...; begin is even. An odd end
// leaves half of the last byte zero.
template <NibbleOrder kOrder, typename Code>
TESSERA_HOST_DEVICE void store_nibbles(std::uint8_t* row, std::int64_t begin, std::int64_t end,
                                       Code code) {
  constexpr int kFirst = kOrder == NibbleOrder::low_first ? 0 : 4;
  const auto byte_of = [](std::uint32_t first, std::uint32_t second) {
    return static_cast<std::uint8_t>(first << kFirst | second << (4 - kFirst));
  };
  // Sixteen codes at a time, all of them before the first byte: a loop that becomes SIMD code.
  constexpr std::int64_t kChunk = 16;
  std::int64_t k = begin;
  for (; k + kChunk <= end; k += kChunk) {
    std::uint32_t codes[kChunk];
    for (std::int64_t i = 0; i < kChunk; ++i) codes[i] = code(k + i);
    for (std::int64_t i = 0; i < kChunk; i += 2) row[(k + i) / 2] = byte_of(codes[i], codes[i + 1]);
  }
  for (; k + 2 <= end; k += 2) row[k / 2] = byte_of(code(k), code(k + 1));
  if (k < end) row[k / 2] = byte_of(code(k), 0);
}

}  // namespace tessera::quant
