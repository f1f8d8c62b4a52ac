// What linear() does to a finished tile of the product before it leaves the cache.
#pragma once

#include "core/rows.h"
#include "cpu/linear/kernels.h"
#include "tessera/linear.h"

namespace tessera::cpu {

// out = act(product + bias) * (up + up_bias) + residual, where each but the product may be missing.
struct Epilogue {
  explicit Epilogue(const LinearArgs& args)
      : bias(args.bias),
        activation(args.activation),
        residual(args.residual),
        out(args.out),
        dtype(args.out.dtype),
        has_residual(args.residual.defined()) {}
  explicit Epilogue(const GatedLinearArgs& args)
      : bias(args.gate_bias),
        up_bias(args.up_bias),
        activation(args.activation),
        out(args.out),
        dtype(args.out.dtype) {}

  Tensor bias{}, up_bias{};
  Activation activation;
  Rows residual{Tensor()}, out;  // of this dtype
  DType dtype;
  bool has_residual = false;
};

// `up` [rows, kTileCols] or null. The product is used up as scratch.
void finish_tile(const Epilogue& epilogue, const ProductTile& product, const float* up);

}  // namespace tessera::cpu
