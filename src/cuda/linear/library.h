// The two kernels for any weight, as the host sees them: cuda.cublaslt and cuda.plain.decode.
//
//   x ----------------------+--> product
//   weight --> operand -----+
//
// cuda.cublaslt: both operands are dense matrices of one dtype. Dense factors of one dtype are read
// in place; factors of two dtypes are converted to f32. A packed weight is decoded into the
// workspace once, in the dtype of x: for f16 and bf16 this rounds each weight once more, with no
// larger error than that of the activations. Decoding pays with many tokens. If the epilogue has
// only a bias and a residual of the output's dtype, the library writes the output itself.
//
// cuda.plain.decode: few tokens, and a weight that would have to be converted. The kernel decodes
// it in registers instead, in f32, and writes the bare product.
//
// Both first convert a weight in tiles back to the published layout, in the workspace; only the
// decoder of cuda.cublaslt for f16 and bf16 reads tiles directly.
#pragma once

#include <cstdint>

#include "core/checked.h"
#include "core/workspace.h"
#include "cuda/linear/call.h"

namespace tessera::cuda {

// The bytes of a matrix in the workspace.
inline std::int64_t matrix_bytes(std::int64_t rows, std::int64_t width, DType dtype) {
  return ScratchSize().add<char>(checked_mul(checked_mul(rows, width), size_of(dtype))).bytes();
}

struct LibraryPlan {
  DType dtype = DType::f32;  // of both operands
  bool reads_tiles = false;  // the weight is decoded directly from its tiles
  std::int64_t scratch_bytes = 0;
};
bool takes_library(const LinearCall& call);
LibraryPlan plan_library(const LinearCall& call);
void run_library(const LinearCall& call, const LibraryPlan& plan);

struct DecodePlan {
  std::int64_t scratch_bytes = 0;
};
bool takes_decode(const LinearCall& call);
DecodePlan plan_decode(const LinearCall& call);
void run_decode(const LinearCall& call, const DecodePlan& plan);

}  // namespace tessera::cuda
