// The epilogue of linear(): out = act(sum + bias) * (up + up_bias) + residual.
#pragma once

#include "core/rows.h"
#include "cuda/linear/matrix.h"
#include "cuda/linear/product.h"
#include "cuda/tile/element.cuh"
#include "cuda/tile/exp2.cuh"
#include "cuda/tile/reciprocal.cuh"
#include "tessera/linear.h"

namespace tessera::cuda {

// exp(x), at most 2^126: the reciprocal of a larger number would be zero.
__device__ inline float fast_exp(float x) { return fast_exp2(fminf(x * 1.44269504f, 126.f)); }

// x / (1 + exp(-z)).
__device__ inline float times_sigmoid(float x, float z) {
  return x * fast_reciprocal(1.f + fast_exp(-z));
}

// x P(normal < x). The smaller tail is computed, as erfc(z) / 2 = exp(-z^2) times a polynomial in t
// = 1 / (1 + 0.33 z), fitted for z up to 10: its relative error is 1e-7. erfcf() has branches and
// four times the instructions.
__device__ inline float times_normal(float x) {
  constexpr float kTail[] = {-0.0676732039f, 0.230120202f, -0.175577974f, 0.204253174f,
                             0.0236084524f,  0.100612579f, 0.091477856f,  0.0931789101f};
  const float z = fabsf(x) * 0.70710678f;
  const float t = fast_reciprocal(1.f + 0.33f * z);
  float tail = kTail[0];
#pragma unroll
  for (int i = 1; i < 8; ++i) tail = tail * t + kTail[i];
  tail *= t * fast_exp(-z * z);
  return x * (x < 0.f ? tail : 1.f - tail);
}

__device__ inline float activate(Activation activation, float x) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return x < 0.f ? 0.f : x;  // a comparison, unlike a maximum, lets NaN through
    case Activation::gelu:
      return times_normal(x);
    case Activation::gelu_tanh:
      // (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)) with u = sqrt(2 / pi) (x + 0.044715 x^3).
      return times_sigmoid(x, 2 * 0.79788456f * x * (1.f + 0.044715f * x * x));
    case Activation::silu:
      return times_sigmoid(x, x);
  }
  return x;
}

// The same out of line, for the end of a kernel. Inline, its many instructions would get in the way
// of sums without an activation. The assembler also balances instructions between units over the
// whole kernel, and would choose badly for the main loop. A template, so that every file may define
// it.
template <typename = void>
__device__ __noinline__ float activate_apart(Activation activation, float x) {
  return activate(activation, x);
}

// Every part but the sum may be missing. R: Rows, or a simpler type with the same row<T>().
template <typename R>
struct Epilogue {
  AnyFloats bias, up_bias;
  Activation activation;
  R residual;
  bool has_residual;
  R out;
  DType dtype;  // of residual and out

  __device__ float value(float sum, std::int64_t n) const {
    return activate(activation, bias.given() ? sum + bias[n] : sum);
  }
  __device__ float gated(float gate, float up, std::int64_t n) const {
    return value(gate, n) * (up_bias.given() ? up + up_bias[n] : up);
  }
  template <typename T>
  __device__ void store_as(float value, std::int64_t m, std::int64_t n) const {
    if (has_residual) value += to_f32(residual.template row<const T>(m)[n]);
    out.template row<T>(m)[n] = from_f32<T>(value);
  }
  // For kernels that are not compiled for one output dtype. All threads take the same branch.
  __device__ void store(float value, std::int64_t m, std::int64_t n) const {
    if (dtype == DType::f32) {
      store_as<float>(value, m, n);
    } else if (dtype == DType::f16) {
      store_as<Half>(value, m, n);
    } else {
      store_as<BFloat16>(value, m, n);
    }
  }
};

// The epilogue of a product of plain matrices.
inline Epilogue<MatrixRows> epilogue_of(const Product& product) {
  return {.bias = AnyFloats(product.bias),
          .up_bias = AnyFloats(product.up_bias),
          .activation = product.activation,
          .residual = MatrixRows(product.residual),
          .has_residual = product.residual.defined(),
          .out = MatrixRows(product.out),
          .dtype = product.out.dtype};
}

}  // namespace tessera::cuda
