// The linear layer in float64.
#pragma once

#include "reference/array.h"
#include "tessera/linear.h"

namespace tessera::reference {

double activate(Activation activation, double x);

// act(x W^T + bias) + residual. x [..., in], weight [out, in]; bias [out] and residual [..., out]
// may be empty.
Array linear(const Array& x, const Array& weight, const Array& bias = {},
             Activation activation = Activation::none, const Array& residual = {});

// act(x Wg^T + bg) * (x Wu^T + bu). An empty bias means none.
Array gated_linear(const Array& x, const Array& gate, const Array& up, Activation activation,
                   const Array& gate_bias = {}, const Array& up_bias = {});

}  // namespace tessera::reference
