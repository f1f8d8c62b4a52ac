// The call of a linear kernel: a product, for a number of tokens.
#pragma once

#include <cstdint>

#include "core/rows.h"
#include "cuda/linear/product.h"
#include "tessera/context.h"

namespace tessera::cuda {

struct LinearCall {
  Context& ctx;
  const Product& product;
  std::int64_t m;  // tokens: x's, or fewer when scratch is reserved ahead
};

// From this many tokens on, products made apart do not stay in the L2 cache until they are read
// again, so their bytes count. Sums may then be rounded to the output's dtype before the epilogue.
inline constexpr std::int64_t kRoundedTokens = 256;

inline std::int64_t tokens_of(const Tensor& x) { return Rows(x).rows(); }

// One weight of a product alone: x W^T without an epilogue, into f32 [M, N]. `out` is in the
// workspace. It is undefined while the call is planned; no plan depends on it.
inline Product bare_product(const Tensor& x, const Weight& weight, const Tensor& out = {}) {
  return {.x = x, .weight = weight, .out = out};
}

}  // namespace tessera::cuda
