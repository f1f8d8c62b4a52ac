// Rows of 16-bit elements in shared memory, so that eight rows read at the same column, as ldmatrix
// reads them, lie in different banks. The 32 banks are eight chunks of 16 bytes wide; a row takes
// an odd number of chunks, so that the next row begins an odd number of chunks further on:
//
//   bank / 4   0 1 2 3 4 5 6 7           row 0 | 0 1 2 3 4 5 6 7
//                                        row 1 | - 0 1 2 3 4 5 6
//                                        row 2 | 7 - 0 1 2 3 4 5
//
// The alternative is to swizzle chunks (place c ^ (r % 8)). That needs no gap, but an address is
// then not a sum: it costs a register or an instruction for every column that is read, and the
// attention kernels have none to spare (128 sums in registers: 560 bytes of spills against 250).
#pragma once

namespace tessera::cuda {

template <int dim>
struct PaddedRows {
  static_assert(dim % 8 == 0);
  static constexpr int kChunks = dim / 8;
  static constexpr int kRowBytes = 16 * (kChunks | 1);

  // Where chunk `chunk` of row `row` begins, in bytes.
  __device__ static int at(int row, int chunk) { return row * kRowBytes + 16 * chunk; }
};

}  // namespace tessera::cuda
