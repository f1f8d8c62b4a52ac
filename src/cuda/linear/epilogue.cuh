// What linear() does with a sum: out = act(sum + bias) * (up + up_bias) + residual.
#pragma once

#include "core/rows.h"
#include "cuda/element.cuh"
#include "cuda/linear/matrix.h"
#include "cuda/linear/product.h"
#include "tessera/linear.h"

namespace tessera::cuda {

// x / (1 + exp(-z)). From 88 on the exponential would leave f32.
__device__ inline float times_sigmoid(float x, float z) {
  return x / (1.f + expf(fminf(-z, 88.f)));
}

__device__ inline float activate(Activation activation, float x) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return x < 0.f ? 0.f : x;  // comparing, unlike a maximum, lets NaN through
    case Activation::gelu:
      return x * (0.5f * erfcf(-x * 0.70710678f));
    case Activation::gelu_tanh:
      // (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)) with u = sqrt(2 / pi) (x + 0.044715 x^3).
      return times_sigmoid(x, 2 * 0.79788456f * x * (1.f + 0.044715f * x * x));
    case Activation::silu:
      return times_sigmoid(x, x);
  }
  return x;
}

// The same out of line, for the end of a kernel: there its many instructions would lie in the way
// of sums that need none, and the assembler, which shares instructions out to units by what the
// whole kernel has, would give a main loop the wrong ones. A template, so that every file may have
// it.
template <typename = void>
__device__ __noinline__ float activate_apart(Activation activation, float x) {
  return activate(activation, x);
}

// Each but the sum may be missing. R: Rows, or what is simpler and has its row<T>().
template <typename R>
struct Finish {
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
  // For kernels that are not made for one dtype of the output. All threads take the same branch.
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

// Of a product that is made of matrices.
inline Finish<MatrixRows> finish_of(const Product& product) {
  return {.bias = AnyFloats(product.bias),
          .up_bias = AnyFloats(product.up_bias),
          .activation = product.activation,
          .residual = MatrixRows(product.residual),
          .has_residual = product.residual.defined(),
          .out = MatrixRows(product.out),
          .dtype = product.out.dtype};
}

}  // namespace tessera::cuda
