// The epilogue of linear(): applied to each tile of the product while it is in the cache.
#pragma once

#include "core/rows.h"
#include "cpu/linear/kernels.h"
#include "tessera/linear.h"

namespace tessera::cpu {

// out = act(product + bias) * (up + up_bias) + residual. All but the product are optional.
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
  Rows residual{Tensor()}, out;
  DType dtype;  // of residual and out
  bool has_residual = false;
};

// `up` is [m_size, kTileN] or null. The product is overwritten.
void apply_epilogue(const Epilogue& epilogue, const ProductTile& product, const float* up);

}  // namespace tessera::cpu
