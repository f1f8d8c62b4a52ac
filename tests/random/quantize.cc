// quantize(): the same bits on every device. dequantize(): the twin's values, rounded once.
#include <cmath>

#include "random/ops.h"
#include "reference/quant.h"
#include "support/compare.h"
#include "tessera/quant.h"

namespace tessera::test {
namespace {

std::vector<unsigned char> bytes_on_host(Context& ctx, const Tensor& tensor) {
  std::vector<unsigned char> bytes(static_cast<std::size_t>(tensor.bytes()));
  copy_bytes(ctx, bytes.data(), Device::cpu(), tensor.data, tensor.device, tensor.bytes());
  ctx.synchronize();
  return bytes;
}

QuantizeOptions draw_format(Draws& draws) {
  std::vector<std::string> names;
  for (const FormatInfo& format : formats()) names.emplace_back(name(format.format));
  QuantizeOptions options{.format = formats()[draws.word("format", names)].format};
  if (options.format == Format::int4) {
    options.group = draws.one_of("group", {-1, 0, 16, 32, 64, 96, 128});
    options.zero_point = draws.chance("zero_point", 50);
  } else if (options.format == Format::int8) {
    options.group = draws.one_of("group", {-1, 0, 7, 32, 48, 128});
  }
  if (draws.chance("from_max", 40)) options.search = ScaleSearch::from_max;
  return options;
}

// Normal numbers; some rows are zero, some elements far out.
Array draw_matrix(Draws& draws, std::int64_t rows, std::int64_t columns) {
  const std::uint64_t seed = draws.seed("seed");
  Array x = random_normal({rows, columns}, seed, draws.real("spread", {1e-3, 1.0, 50.0}));
  const bool outliers = draws.chance("outliers", 30), zeros = draws.chance("zero_rows", 30);
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    if (outliers && i % 101 == 7) x.data[i] *= 100;
    if (zeros && i / static_cast<std::size_t>(columns) % 3 == 1) x.data[i] = 0;
  }
  return x;
}

}  // namespace

void random_quantize(Trial& trial) {
  Draws& draws = trial.draws;
  const QuantizeOptions options = draw_format(draws);
  const std::int64_t columns = draws.size("in", 1, 3000);
  const std::int64_t rows =
      draws.size("out", 1, std::clamp<std::int64_t>(trial.work / 16 / columns, 1, 600));
  const DType dtype = draws.dtype("dtype", kFloats), to = draws.dtype("to", kFloats);
  const Layout layout = draws.layout("layout"), out_layout = draws.layout("out_layout");
  const Array values = draw_matrix(draws, rows, columns);

  trial.begin("any");
  Context one({.threads = 1});
  const TestTensor dense(trial.ctx, values, dtype, layout), on_host(one, values, dtype);
  const PackedWeight packed = quantize(trial.ctx, dense, options),
                     exact = quantize(one, on_host, options);
  const auto same = [&](const Tensor& a, const Tensor& b) {
    return bytes_on_host(trial.ctx, a) == bytes_on_host(one, b);
  };
  trial.expect(same(packed.weight.data, exact.weight.data), "codes differ from those of the CPU");
  trial.expect(same(packed.weight.scales, exact.weight.scales),
               "scales differ from those of the CPU");
  if (exact.weight.zeros.defined()) {
    trial.expect(same(packed.weight.zeros, exact.weight.zeros),
                 "zero points differ from those of the CPU");
  }
  trial.expect(packed.weight.tensor_scale == exact.weight.tensor_scale, "tensor scales differ");

  const TestTensor out = TestTensor::poisoned(trial.ctx, {rows, columns}, to, out_layout);
  dequantize(trial.ctx, packed.weight, out);
  const Array expected = reference::dequantize(exact.weight);
  const double rounding = to == DType::f32 ? 0x1p-22 : 0.51 * epsilon(to) + 0x1p-22;
  trial.expect(close(out.read(), expected, rounding, to == DType::f16 ? 0x1p-24 : 1e-37),
               "decoded");
  trial.expect(out.surroundings_intact() && dense.untouched(), "something else was written");
}

}  // namespace tessera::test
