// Rows of 16-bit elements in shared memory, without gaps. Eight rows read at one column, as
// ldmatrix reads them, must lie in different eighths of the banks (16 bytes each). So 16-byte
// chunks exchange places depending on the row, unless row r already begins at a different eighth
// than row 0:
//
//   chunks of a row    begins at eighth    chunk c lies in place
//   8, 16, 32          0                   c ^ (r % 8)
//   12 (dim 96)        0 4 0 4 0 4 0 4     c ^ (r / 2 % 4)
//   10 (dim 80)        0 2 4 6 0 2 4 6     c ^ (r / 4 % 2)
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace tessera::cuda {

template <int dim>
struct SwizzledRows {
  static constexpr int kChunks = dim / 8, kRowBytes = 2 * dim;
  // The lowest bits of a chunk's number that take part in the exchange.
  static constexpr int kBits = std::min(3, std::countr_zero(static_cast<unsigned>(kChunks)));
  static constexpr int kMask = (1 << kBits) - 1;
  static_assert(kBits >= 1 && dim % 8 == 0);

  // Where chunk `chunk` of row `row` begins, in bytes.
  __device__ static std::uint32_t at(int row, int chunk) {
    const int place = chunk ^ (row >> (3 - kBits) & kMask);
    return static_cast<std::uint32_t>(row * kRowBytes + 16 * place);
  }
  // Maps at(row, c) to at(row, c + chunks), for c of 0 or 1 and an even number of chunks. Rows are
  // aligned to the bytes that exchange places, and so must the address be that `at` is added to.
  __device__ static std::uint32_t moved(std::uint32_t at, int chunks) {
    const auto bytes = [](int n) { return static_cast<std::uint32_t>(16 * n); };
    // One operation where possible: the compiler would keep the results of the first of two.
    if (std::has_single_bit(static_cast<unsigned>(kChunks))) return at ^ bytes(chunks);
    return (at ^ bytes(chunks & kMask)) + bytes(chunks & ~kMask);
  }
};

}  // namespace tessera::cuda
