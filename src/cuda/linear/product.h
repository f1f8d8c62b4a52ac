// linear() and gated_linear() as one: out = act(x W^T + bias) [* (x Wu^T + up_bias)] + residual.
#pragma once

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
