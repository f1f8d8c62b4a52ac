// Packs a linear layer into every format, and shows what each costs: memory and accuracy. Then runs
// the packed layer, which is the same call as the dense one.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "tessera/tessera.h"

namespace {

constexpr std::int64_t kRows = 8, kIn = 1024, kOut = 512;

std::vector<float> random_values(std::int64_t count, float deviation, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.f, deviation);
  std::vector<float> values(static_cast<std::size_t>(count));
  std::generate(values.begin(), values.end(), [&] { return normal(generator); });
  return values;
}

// The root of the mean squared difference, relative to that of `exact`.
double relative_error(const std::vector<float>& values, const std::vector<float>& exact) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    difference += std::pow(double{values[i]} - exact[i], 2);
    size += std::pow(double{exact[i]}, 2);
  }
  return std::sqrt(difference / size);
}

}  // namespace

int main() {
  using tessera::DType;
  using tessera::Tensor;
  const std::vector<float> x = random_values(kRows * kIn, 1.f, 1);
  const std::vector<float> matrix = random_values(kOut * kIn, 0.03f, 2);
  const Tensor input(x.data(), DType::f32, {kRows, kIn});
  const Tensor dense(matrix.data(), DType::f32, {kOut, kIn});

  tessera::Context ctx;
  std::vector<float> exact(kRows * kOut), out(kRows * kOut);
  tessera::linear(ctx, {.x = input,
                        .weight = tessera::Weight::dense(dense),
                        .out = Tensor(exact.data(), DType::f32, {kRows, kOut})});
  std::printf("%-8s %10s %16s %14s\n", "format", "KiB", "bits per weight", "error of out");
  std::printf("%-8s %10.1f %16.2f %14s\n", "f32", static_cast<double>(dense.bytes()) / 1024, 32.0,
              "0");

  double worst = 0;
  for (const tessera::FormatInfo& format : tessera::formats()) {
    const tessera::PackedWeight packed = tessera::quantize(ctx, dense, {.format = format.format});
    // The layout on which this device is fastest; linear() takes either. Made once, at load.
    const tessera::PackedWeight prepared = tessera::prepare(ctx, packed.weight);
    tessera::linear(ctx, {.x = input,
                          .weight = prepared.weight,
                          .out = Tensor(out.data(), DType::f32, {kRows, kOut})});
    const double error = relative_error(out, exact);
    const double bytes = static_cast<double>(packed.weight.bytes());
    std::printf("%-8s %10.1f %16.2f %13.2f%%\n", std::string(format.name).c_str(), bytes / 1024,
                bytes * 8 / (kOut * kIn), error * 100);
    worst = std::max(worst, error);
  }
  return worst < 0.2 ? 0 : 1;
}
