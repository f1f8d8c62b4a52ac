// Where the parts of a row lie in shared memory under a swizzle of 128 bytes, as the copy engine
// writes and reads it (tma.cuh) and the tensor cores read it (wgmma.cuh). Rows have 128 bytes and
// are consecutive, starting at a multiple of 1024. A row has eight parts of 16 bytes; part p of row
// r lies in place p ^ (r % 8).
//
//   row 0 | 0 1 2 3 4 5 6 7       Eight rows read at one part, or one row read whole, meet every
//   row 1 | 1 0 3 2 5 4 7 6       bank once.
//   row 2 | 2 3 0 1 6 7 4 5
#pragma once

namespace tessera::cuda::tile {

// The offset in bytes from the first row.
__host__ __device__ constexpr int swizzled(int row, int part) {
  return row * 128 + (part ^ (row % 8)) * 16;
}

}  // namespace tessera::cuda::tile
