// Calls of linear() for tests: weights of every dtype and format, and how far from float64 a result
// may be.
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
  bool prepared = false;                    // as prepare() lays it out, not as published
  std::optional<DType> scales{};            // not given: what quantize() makes
  bool int8_zeros = false;                  // random ones, which quantize() does not make
  std::function<void(Weight&)> adjust{};    // changes what is there then, on the CPU

  std::string text() const;
};
// Dense in every dtype; every format and group, as quantize() and as others make it, published and
// prepared.
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
  // What 8-bit kernels may be off by in each weight: nothing, but half a step of nf4's table.
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

// How far x W^T may be from float64, for each element of the result.
//
// f32: each of the K products and sums rounds once, and the scales a few times more: (K + 8) 2^-24
// sum|x||w| in whatever order the sum is taken; where numbers are subnormal, half of 2^-149 each.
//
// On a GPU f16 and bf16 meet packed weights that are rounded to the same dtype where there are more
// than eight rows or the weight is in tiles: half a unit in the last place of each weight more, in
// tiles three (of nf4's table, of the scale, of their product; others have fewer).
//
// 8-bit activations, in blocks of 32: each x is off by up to e = max|x| / 254, and each weight by
// int8_error(): sum of e |w| + (|x| + e) int8_error more.
Array product_bound(const Array& x, DType x_dtype, const TestWeight& weight,
                    Activations activations);

// |actual - expected| <= bound + the rounding of expected to dtype, element by element.
testing::AssertionResult within(const Array& actual, const Array& expected, const Array& bound,
                                DType dtype);

struct LinearCase {
  std::vector<std::int64_t> rows = {3};  // the leading dimensions of x
  std::int64_t in = 113, out = 17;
  WeightCase weight{};
  DType x_dtype = DType::f32, out_dtype = DType::f32;
  double x_scale = 1;                  // of its random numbers
  int x_sign = 0;                      // 1: none of them is negative
  Layout layout = Layout::contiguous;  // of x, residual and out, and of a published weight
  Activations activations = Activations::exact;
  Activation activation = Activation::none;
  std::optional<DType> bias{};
  bool residual = false;

  std::string text() const;
};

// The tensors of one call, random but the same for the same case.
struct LinearCall {
  LinearCall(Context& ctx, const LinearCase& how);

  // The output is within its bound of float64, and nothing else was written.
  testing::AssertionResult correct() const;

  LinearCase c;
  TestTensor x, out;
  TestWeight weight;
  std::optional<TestTensor> bias, residual;
  LinearArgs args;
};

// Calls linear() twice: both are correct and equal in all bits.
void check_linear(Context& ctx, const LinearCase& c);

}  // namespace tessera::test
