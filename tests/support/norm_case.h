// One call of layer_norm() or rms_norm() for tests: its tensors and its expected results.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "reference/test_tensor.h"
#include "tessera/norm.h"

namespace tessera::test {

enum class NormKind { layer, rms };
inline constexpr NormKind kNormKinds[] = {NormKind::layer, NormKind::rms};

void run_norm(Context& ctx, NormKind kind, const NormArgs& args);

struct NormCase {
  NormKind kind = NormKind::layer;
  std::vector<std::int64_t> shape = {2, 3, 113};
  DType dtype = DType::f32;
  DType weight_dtype = DType::f32;
  Layout layout = Layout::contiguous;
  int residuals = 0;
  bool bias = true;  // of a layer norm
  Dropout dropout{};
  std::uint64_t seed = 0;  // other numbers of the same kind

  std::string text() const;
};

// The tensors of one call.
struct NormCall {
  TestTensor x, weight, bias, out, sum;
  std::vector<TestTensor> residuals;
  NormArgs args;

  NormCall(Context& ctx, const NormCase& c, double offset = 0.5);

  Array expected_sum(DType dtype) const;

  Array expected_out(NormKind kind, DType dtype) const;
};

testing::AssertionResult accurate_norm(const Array& actual, const Array& expected, DType dtype);

// Runs the call twice. Both results must match the reference and each other bit for bit, and
// nothing else may be written.
void check_norm(Context& ctx, const NormCase& c);

}  // namespace tessera::test
