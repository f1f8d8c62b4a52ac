#include "reference/norm.h"

#include <cmath>

#include "core/philox.h"
#include "reference/rounding.h"

namespace tessera::reference {

Array dropped(Array x, const Dropout& dropout, DType dtype) {
  if (dropout.p == 0) return x;
  const auto n = static_cast<std::size_t>(x.size(-1));
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    const auto column = static_cast<std::uint32_t>(i % n);
    const PhiloxWords words =
        norm_dropout_words(dropout.seed, static_cast<std::int64_t>(i / n), column);
    const bool kept = words[column % 4] >= dropout_threshold(dropout.p);
    x.data[i] = kept ? rounded(x.data[i] * double{kept_factor(dropout.p)}, dtype) : 0.0;
  }
  return x;
}

Array residual_sum(Array x, const std::vector<Array>& residuals, DType dtype) {
  for (const Array& residual : residuals) {
    for (std::size_t i = 0; i < x.data.size(); ++i) {
      x.data[i] = rounded(x.data[i] + residual.data[i], dtype);
    }
  }
  return x;
}

Array layer_norm(const Array& x, const Array& weight, const Array& bias, double eps) {
  const std::size_t n = weight.data.size();
  Array out(x.shape);
  for (std::size_t row = 0; row < x.data.size(); row += n) {
    double mean = 0, variance = 0;
    for (std::size_t i = 0; i < n; ++i) mean += x.data[row + i] / static_cast<double>(n);
    for (std::size_t i = 0; i < n; ++i) {
      variance += std::pow(x.data[row + i] - mean, 2) / static_cast<double>(n);
    }
    for (std::size_t i = 0; i < n; ++i) {
      const double normal = (x.data[row + i] - mean) / std::sqrt(variance + eps);
      out.data[row + i] = normal * weight.data[i] + (bias.empty() ? 0.0 : bias.data[i]);
    }
  }
  return out;
}

Array rms_norm(const Array& x, const Array& weight, double eps) {
  const std::size_t n = weight.data.size();
  Array out(x.shape);
  for (std::size_t row = 0; row < x.data.size(); row += n) {
    double mean_square = 0;
    for (std::size_t i = 0; i < n; ++i) {
      mean_square += std::pow(x.data[row + i], 2) / static_cast<double>(n);
    }
    for (std::size_t i = 0; i < n; ++i) {
      out.data[row + i] = x.data[row + i] / std::sqrt(mean_square + eps) * weight.data[i];
    }
  }
  return out;
}

}  // namespace tessera::reference
