// linear() and gated_linear() in one form: out = act(x W^T + bias) [* (x Wu^T + up_bias)] +
// residual.
#pragma once

#include "cuda/linear/matrix.h"
#include "tessera/linear.h"

namespace tessera::cuda {

struct Product {
  Tensor x{};
  Weight weight{}, up{};  // up: of gated_linear() alone
  Tensor bias{}, up_bias{};
  Activation activation = Activation::none;
  Tensor residual{}, out{};

  bool gated() const { return up.defined(); }
};

// Whether all tensors that are given are matrices.
inline bool made_of_matrices(const Product& product) {
  const auto fits = [](const Tensor& tensor) { return !tensor.defined() || as_matrix(tensor); };
  return fits(product.x) && fits(product.out) && fits(product.residual);
}

// Whether one kernel can go through gate and up together.
inline bool alike(const Weight& gate, const Weight& up) {
  return up.format == gate.format && up.layout == gate.layout && up.group == gate.group &&
         up.zeros.defined() == gate.zeros.defined();
}

inline Product product_of(const LinearArgs& args) {
  return {.x = args.x,
          .weight = args.weight,
          .bias = args.bias,
          .activation = args.activation,
          .residual = args.residual,
          .out = args.out};
}
inline Product product_of(const GatedLinearArgs& args) {
  return {.x = args.x,
          .weight = args.gate,
          .up = args.up,
          .bias = args.gate_bias,
          .up_bias = args.up_bias,
          .activation = args.activation,
          .out = args.out};
}

}  // namespace tessera::cuda
