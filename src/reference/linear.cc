#include "reference/linear.h"

#include <cmath>
#include <numbers>

namespace tessera::reference {

double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return x < 0 ? 0 : x;
    case Activation::gelu:
      return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case Activation::gelu_tanh:
      return 0.5 * x *
             (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::silu:
      return x / (1 + std::exp(-x));
  }
  return x;
}

Array linear(const Array& x, const Array& weight, const Array& bias, Activation activation,
             const Array& residual) {
  const std::int64_t in = weight.size(1), out_features = weight.size(0);
  std::vector<std::int64_t> shape = x.shape;
  shape.back() = out_features;
  Array out(shape);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    const std::int64_t m = i / out_features, n = i % out_features;
    double sum = bias.empty() ? 0.0 : bias.at(n);
    const double *x_row = x.data.data() + m * in, *weight_row = weight.row(n);
    for (std::int64_t k = 0; k < in; ++k) sum += x_row[k] * weight_row[k];
    out.data[i] = activate(activation, sum) + (residual.empty() ? 0.0 : residual.data[i]);
  }
  return out;
}

Array gated_linear(const Array& x, const Array& gate, const Array& up, Activation activation,
                   const Array& gate_bias, const Array& up_bias) {
  Array out = linear(x, gate, gate_bias, activation);
  const Array factor = linear(x, up, up_bias);
  for (std::size_t i = 0; i < out.data.size(); ++i) out.data[i] *= factor.data[i];
  return out;
}

}  // namespace tessera::reference
