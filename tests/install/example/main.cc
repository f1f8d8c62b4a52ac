// A linear layer of a user's own, packed to 4 bits: 2 x 8 -> 3.
#include <cmath>
#include <cstdio>
#include <vector>

#include "tessera/tessera.h"

int main() {
  std::vector<float> weight(3 * 8);
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<float>(i % 5) - 2.f;
  const std::vector<float> x(2 * 8, 1.f);
  std::vector<float> out(2 * 3);

  tessera::Context ctx;
  const tessera::Tensor dense(weight.data(), tessera::DType::f32, {3, 8});
  const tessera::PackedWeight packed =
      tessera::quantize(ctx, dense, {.format = tessera::Format::nvfp4});
  tessera::linear(ctx, {.x = tessera::Tensor(x.data(), tessera::DType::f32, {2, 8}),
                        .weight = packed.weight,
                        .out = tessera::Tensor(out.data(), tessera::DType::f32, {2, 3})});

  // The weights are whole numbers up to 2, which 4 bits hold to a few percent.
  float expected = 0.f;
  for (int k = 0; k < 8; ++k) expected += weight[static_cast<std::size_t>(k)];
  std::printf("tessera %s: %.3f, expected about %.3f\n", tessera::version(), out[0], expected);
  return std::abs(out[0] - expected) < 0.5f ? 0 : 1;
}
