// The kernels behind linear(). Each computes tiles of x W^T in f32; src/cpu/linear.cc chooses one,
// shares the tiles out to the threads and hands each finished tile to the epilogue.
//
//              W [N, K]                            a task: one tile
//                                                    64 columns of the result (rows of W)
//   x [M, K]  +--------------+                       x up to max_rows rows of x
//             | tile | tile  |  \ max_rows
//             |------+-------|  /
//             | tile | tile  |
//             +--------------+  [M, N]
//                64
//
// The cut depends on the shapes and the kernel alone, so that results do not depend on the threads.
#pragma once

#include <cstdint>

#include "core/rows.h"
#include "tessera/tensor.h"
#include "tessera/weight.h"

namespace tessera::cpu {

// Whole tiles of weights (16) and whole panels of every target (32, 16, 8). Small enough that a
// layer of 1024 columns still makes sixteen tasks.
inline constexpr std::int64_t kTileCols = 64;

// Rows that are packed together; a multiple of the rows of every microkernel (12, 6).
inline constexpr std::int64_t kPackRows = 12;

// Up to this many rows of x, kernels that multiply the weight as they read it beat those that
// decode it into panels first; measured on 4096 x 4096 weights with AVX-512, for each of them.
inline constexpr std::int64_t kFewRows = 3 * kPackRows;

// x in the form that a kernel reads, in the workspace.
struct PackedInput {
  std::int64_t rows = 0, depth = 0;  // M, K
  char* data = nullptr;
};

// Rows [row, row + rows) of x times rows [col, col + cols) of W.
struct ProductTile {
  std::int64_t row, rows;
  std::int64_t col, cols;
  float* out;  // [rows rounded up to kPackRows, kTileCols]
};

struct LinearKernel {
  const char* name;
  std::int64_t max_rows;  // of one tile; a multiple of kPackRows
  // Bytes of the packed form of x [rows, depth].
  std::int64_t (*input_bytes)(std::int64_t rows, std::int64_t depth);
  // Packs rows [row, row + rows); row is a multiple of kPackRows.
  void (*pack)(const Rows& x, DType dtype, std::int64_t row, std::int64_t rows, PackedInput& to);
  // Scratch of one thread.
  std::int64_t (*scratch_bytes)(const Weight& weight);
  void (*multiply)(const Weight& weight, const PackedInput& x, const ProductTile& tile,
                   char* scratch);
};

// Dense and fp8 weights, read row by row: for few rows of x, bound by memory.
const LinearKernel& gemv_kernel(const Weight& weight);
// Any weight, decoded into f32 panels: for many rows of x, bound by arithmetic.
const LinearKernel& gemm_kernel(const Weight& weight);
// Packed weights in the published layout, decoded row by row: few rows of x.
const LinearKernel& decode_kernel();
// Tiled weights, decoded to f32: few rows of x.
const LinearKernel& tiles_exact_kernel();
// Tiled weights, in 8-bit integers.
const LinearKernel& tiles_int8_kernel(const Weight& weight);

}  // namespace tessera::cpu
