// Tensor maps: the layout of a tensor for the copy engine (tma.cuh). The host makes them for each
// call and passes them to the kernel by value.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "tessera/dtype.h"

namespace tessera::cuda::tile {

// A tensor of f16, bf16 or, for make_row_map(), 8 bits that is cut into boxes of
// [box_planes, box_rows, 64]; sizes and strides (in elements) from the innermost dimension out,
// which is contiguous.
struct BoxedTensor {
  const void* data;
  DType dtype;
  std::int64_t sizes[4];
  std::int64_t strides[3];  // of dimensions 1 to 3; a dimension of size 1 may have any
  int box_rows;
  int box_planes = 1;
  int box_heads = 1;         // along sizes[2], only for make_row_map()
  bool nan_outside = false;  // outside the tensor is NaN, not 0; only with 16 bits
};

// Whether the copy engine takes the tensor: rows are aligned to 16 bytes and do not overlap.
bool can_be_boxed(const BoxedTensor& tensor);
// Boxes arrive in rows of 128 bytes, swizzled by 128 bytes.
CUtensorMap make_tensor_map(const BoxedTensor& tensor);

// The same tensor cut into boxes of whole rows. Rows of a multiple of 128 bytes arrive in panels,
// [box_heads, box_planes, box_rows, 128 bytes], swizzled by 128 bytes; other rows one after the
// other. The coordinates of a box are {0, row, panel, index along sizes[2], index along sizes[3]}.
CUtensorMap make_row_map(const BoxedTensor& tensor);

// Rows of bytes on 16-byte boundaries, cut into boxes of [box_rows, box_bytes], both at most 256
// and 2048; all in multiples of 16 bytes. The coordinates of a box are in units of 8 bytes; it
// arrives row after row.
struct BoxedBytes {
  const void* data;
  std::int64_t rows, row_bytes;
  int box_rows, box_bytes;
};
CUtensorMap make_tensor_map(const BoxedBytes& bytes);

}  // namespace tessera::cuda::tile
