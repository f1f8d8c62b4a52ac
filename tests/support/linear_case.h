// Calls of linear() for tests: tensors of every dtype, layout, format, and how far from float64 each may
// be.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "support/test_tensor.h"
#include "tessera/linear.h"
#include "tessera/quant.h"

namespace tessera::test {

// A weight [out, in] and its values in float64.
struct WeightCase {
  std::optional<QuantizeOptions> packed{};  // not given: dense
  DType dtype = DType::f32;                 // of a dense weight
  bool prepared = false;                    // as prepare() lays it out, not as published

  std::string text() const;
};
// Dense in every dtype; every format and group, published and prepared.
std::vector<WeightCase> every_weight();

class TestWeight {
 public:
  TestWeight(Context& ctx, const WeightCase& how, std::int64_t out, std::int64_t in,
             Layout layout = Layout::contiguous, std::uint64_t seed = 2);

  const Weight& weight() const { return prepared_.weight.defined() ? prepared_.weight : weight_; }
  const Array& values() const { return values_; }  // [out, in]
  // Nothing of it was written to.
  bool untouched() const;

 private:
  std::vector<TestTensor> parts_;  // of the published weight: data, scales, zeros
  Weight weight_;
  PackedWeight prepared_;
  std::vector<unsigned char> prepared_bytes_;
  Array values_;
};

struct LinearCase {
  std::vector<std::int64_t> rows = {3};  // the leading dimensions of x
  std::int64_t in = 113, out = 17;
  WeightCase weight{};
  DType x_dtype = DType::f32, out_dtype = DType::f32;
  Layout layout = Layout::contiguous;  // of x, residual and out, and of a published weight
  Activations activations = Activations::exact;
  Activation activation = Activation::none;
  std::optional<DType> bias{};
  bool residual = false;

  std::string text() const;
};

// The tensors of one call, random but the same for the same case.
class LinearCall {
 public:
  LinearCall(Context& ctx, const LinearCase& c);

  Array expected() const;
  // The call's output is within its bound of expected(), and nothing else was written.
  testing::AssertionResult correct() const;

  LinearCase c;
  TestTensor x, out;
  TestWeight weight;
  std::optional<TestTensor> bias, residual;
  LinearArgs args;

 private:
  Context* ctx_;
};

// How far a product may be from float64: [rows of x, out] for x [..., in] and weights [out, in].
//
// f32 sums: each of the K products and additions rounds once, so that the sum is off by at most
// (K + 2) 2^-24 sum|x||w| in whatever order it is taken.
//
// 8-bit activations: in a block of 32 each x is off by max|x| / 254 at most, so that the sum is off by
// sum over blocks of max|x| / 254 * sum|w|. nf4's table is then 8-bit as well: each weight is off by
// 1 / 254 of its block's scale, which the largest weight of a row bounds from below only, so that the
// scale itself is taken: `nf4_scales` [out, blocks of 64], else empty.
Array product_bound(const Array& x, const Array& weights, bool int8_activations,
                    const Array& nf4_scales);

// |actual - expected| <= bound, element by element.
testing::AssertionResult within(const Array& actual, const Array& expected, const Array& bound);

}  // namespace tessera::test
