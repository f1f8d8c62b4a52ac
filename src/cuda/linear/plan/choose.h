// Which kernel takes a product (linear.cc says what they are), by shapes, layouts and one table of
// measured crossover points.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cuda/linear/product.h"
#include "tessera/context.h"

namespace tessera::cuda {

inline constexpr std::string_view kStream = "cuda.stream", kStrips = "cuda.strips",
                                  kLibrary = "cuda.cublaslt", kPlainDecode = "cuda.plain.decode";

// Without an epilogue, into f32.
inline Product bare_product(const Tensor& x, const Weight& weight, const Tensor& out) {
  return {.x = x, .weight = weight, .out = out};
}

// The kernels that decode tiles as they multiply.
struct TileKernel {
  const char* name;
  std::int64_t (*scratch_bytes)(Context&, const Product&, std::int64_t rows);
  void (*multiply)(Context&, const Product&, void* scratch);
};
// The one for this product; null if there is none, or it does not pay.
const TileKernel* tile_kernel(Context& ctx, const Product& product, std::int64_t rows);

// Of those for any weight.
const char* choose_for_weight(const Tensor& x, const Weight& weight, std::int64_t rows);

// Of all: its name.
const char* choose(Context& ctx, const Product& product, std::int64_t rows);

// Up to so many rows, whichever of these, other kernels may be chosen than for more.
std::vector<std::int64_t> rows_of_other_kernels(const Product& product);

}  // namespace tessera::cuda
