// Calls of linear() for tests: weights of every dtype and format, and bounds for the error of a
// result.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reference/test_tensor.h"
#include "tessera/linear.h"
#include "tessera/quant.h"

namespace tessera::test {

struct WeightCase {
  std::optional<QuantizeOptions> packed{};  // not given: dense
  DType dtype = DType::f32;                 // of a dense weight
  bool prepared = false;                    // in prepare()'s layout, not in the published one
  std::optional<DType> scales{};            // not given: what quantize() makes
  bool int8_zeros = false;                  // random zero points; quantize() makes none
  std::function<void(Weight&)> adjust{};    // changes the finished weight, on the CPU

  std::string text() const;
};
// Dense weights of every dtype, and every format and group: as quantize() and other tools make
// them, published and prepared.
std::vector<WeightCase> every_weight();

// A weight [out, in] on the Context's device, packed on the CPU, and its values in float64.
class TestWeight {
 public:
  TestWeight(Context& ctx, const WeightCase& how, std::int64_t out, std::int64_t in,
             Layout layout = Layout::contiguous, std::uint64_t seed = 2);

  const Weight& weight() const {
    return prepared_.weight.defined() ? prepared_.weight : published_;
  }
  const Array& values() const { return values_; }
  // The error of 8-bit kernels in each weight: half a step of the table for nf4, otherwise none.
  const Array& int8_error() const { return int8_error_; }
  bool untouched() const;

 private:
  void copy_parts(const Weight& weight, Layout layout);

  Context* ctx_;
  std::vector<TestTensor> parts_;  // data, scales, zeros, as published
  Weight published_;
  PackedWeight prepared_;
  std::vector<unsigned char> prepared_bytes_;
  Array values_, int8_error_;
};

// A bound for the error of x W^T, for each element of the result.
//
// f32: each of the K products and sums rounds once, and the scales round a few times more. That
// makes (K + 8) 2^-24 sum|x||w|, in whatever order the sum is taken. Subnormal numbers add half of
// 2^-149 each.
//
// On a GPU, with f16 and bf16, packed weights are rounded to the same dtype if there are more than
// eight tokens or the weight is in tiles. That adds half a unit in the last place of each weight,
// in tiles three of them (for the nf4 table, the scale and their product; other formats have
// fewer).
//
// 8-bit activations, in blocks of 32: the error of each x is up to e = max|x| / 254, and that of
// each weight is int8_error(). That adds the sum of e |w| + (|x| + e) int8_error.
//
// `any_kernel`: for any kernel; few tokens may be rounded as many are.
Array product_bound(const Array& x, DType x_dtype, const TestWeight& weight,
                    Activations activations, bool any_kernel = false);
// Whether sums may be rounded to a 16-bit output before the epilogue: on a GPU, with so many rows
// that the product and its epilogue run apart.
inline bool may_round_sums(const Tensor& out, std::int64_t rows) {
  return out.device.is_cuda() && out.dtype != DType::f32 && rows >= 256;
}

// |actual - expected| <= bound + the rounding of expected to dtype, element by element.
testing::AssertionResult within(const Array& actual, const Array& expected, const Array& bound,
                                DType dtype);

struct LinearCase {
  std::vector<std::int64_t> rows = {3};  // the leading dimensions of x
  std::int64_t in = 113, out = 17;
  WeightCase weight{};
  DType x_dtype = DType::f32, out_dtype = DType::f32;
  double x_scale = 1;                  // scale of its random numbers
  int x_sign = 0;                      // 1: none of them is negative
  Layout layout = Layout::contiguous;  // of x, residual and out, and of a published weight
  Activations activations = Activations::exact;
  Activation activation = Activation::none;
  std::optional<DType> bias{};
  bool residual = false;
  std::uint64_t seed = 0;   // other numbers of the same kind
  bool any_kernel = false;  // as of product_bound()

  std::string text() const;
};

// The tensors of one call, random but the same for the same case.
struct LinearCall {
  LinearCall(Context& ctx, const LinearCase& how);

  // Whether the output is within its bound of float64, and nothing else was written.
  testing::AssertionResult correct() const;

  LinearCase c;
  TestTensor x, out;
  TestWeight weight;
  std::optional<TestTensor> bias, residual;
  LinearArgs args;

 private:
  std::int64_t tokens_together(std::int64_t row, std::int64_t tokens) const;
};

// Calls linear() twice. Both results must be correct, and equal bit for bit.
void check_linear(Context& ctx, const LinearCase& c);

}  // namespace tessera::test
