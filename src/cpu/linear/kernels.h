// The kernels behind linear(): out [M, N] = x [M, K] W^T, for W [N, K]. M is tokens (rows of x), N
// is output features (rows of W), K is depth. Each kernel computes tiles of x W^T in f32. linear.cc
// chooses a kernel, divides the tiles among the threads and passes each tile to the epilogue.
//
//                   W [N, K]                       a task is one tile:
//                                                    kTileN = 64 output features
//   x [M, K]     +------+------+                     x up to max_m tokens
//                | tile | tile |  \ max_m
//                |------+------|  /
//                | tile | tile |
//                +------+------+  [M, N]
//                 kTileN
//
// The tiles depend only on the shapes and the kernel, so results do not depend on the number of
// threads.
#pragma once

#include <cstdint>

#include "core/rows.h"
#include "tessera/tensor.h"
#include "tessera/weight.h"

namespace tessera::cpu {

// Output features of a tile: whole weight tiles (16) and whole panels of every target (32, 16, 8).
// It is small enough that a layer of 1024 features still makes sixteen tasks.
inline constexpr std::int64_t kTileN = 64;

// Tokens that are packed together: a multiple of the tokens of every microkernel (12, 6).
inline constexpr std::int64_t kPackM = 12;

// Up to this many tokens, kernels that multiply the weight as they read it beat kernels that decode
// it into panels first. This was measured for each of them, on 4096 x 4096 weights with AVX-512.
inline constexpr std::int64_t kFewM = 3 * kPackM;

// x [m_size, k_size] in the form that a kernel reads, in the workspace.
struct PackedInput {
  std::int64_t m_size = 0, k_size = 0;
  char* data = nullptr;
};

// A tile of the product: tokens [m0, m0 + m_size) times output features [n0, n0 + n_size).
struct ProductTile {
  std::int64_t m0, m_size;
  std::int64_t n0, n_size;
  float* out;  // [m_size rounded up to kPackM, kTileN]
};

struct LinearKernel {
  const char* name;
  std::int64_t max_m;            // most tokens of a tile; a multiple of kPackM
  std::int64_t pack_m = kPackM;  // tokens that one task packs
  // Bytes of the packed form of x [m_size, k_size].
  std::int64_t (*input_bytes)(std::int64_t m_size, std::int64_t k_size);
  // Packs tokens [m0, m0 + m_size); m0 is a multiple of pack_m.
  void (*pack)(const Rows& x, DType dtype, std::int64_t m0, std::int64_t m_size, PackedInput& to);
  // Scratch memory of one thread.
  std::int64_t (*scratch_bytes)(const Weight& weight);
  void (*multiply)(const Weight& weight, const PackedInput& x, const ProductTile& tile,
                   char* scratch);
};

// Dense and fp8 weights, read row by row: for few tokens, bound by memory.
const LinearKernel& gemv_kernel(const Weight& weight);
// Any weight, decoded into f32 panels: for many tokens, bound by arithmetic.
const LinearKernel& gemm_kernel(const Weight& weight);
// Packed weights in the published layout, decoded row by row: for few tokens.
const LinearKernel& decode_kernel();
// Tiled weights, decoded to f32: for few tokens.
const LinearKernel& tiles_exact_kernel();
// Tiled weights times activations of 8-bit integers: for any number of tokens.
const LinearKernel& tiles_int8_kernel(const Weight& weight);

}  // namespace tessera::cpu
