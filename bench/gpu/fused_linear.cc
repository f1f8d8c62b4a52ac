// FusedFP4Linear next to the dense f32 layer that it replaces: time at the same batch, memory, and
// error in the same run. Each call has a layer of its own, so that none finds its weights in a
// cache.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "noise.h"
#include "options.h"
#include "quant/format_table.h"
#include "row.h"
#include "tessera/modules.h"
#include "timer.h"

namespace tessera::bench {
namespace {

// The 4-bit floats.
std::vector<std::string> fp4_formats() {
  std::vector<std::string> names;
  for (const quant::FormatEntry& format : quant::packed_formats()) {
    const bool is_float = !format.stored.empty() && format.stored.front().type == "float";
    if (is_float && format.info.bits == 4) names.emplace_back(format.info.name);
  }
  return names;
}

struct FusedOptions {
  std::string shape = "768x3072";  // in x out
  std::vector<std::int64_t> rows{1, 8, 32, 128, 1024};
  std::vector<std::string> formats = fp4_formats(), dtypes{"f16", "bf16", "f32"};
};

// Enough layers to exceed the cache.
template <typename Layer>
std::vector<Layer> copies(Context& ctx, const std::function<Layer()>& make) {
  std::vector<Layer> layers;
  layers.push_back(make());
  const int count = copies_beyond_cache(layers[0].bytes(), 64);
  while (static_cast<int>(layers.size()) < count) layers.push_back(make());
  ctx.synchronize();
  return layers;
}

class FusedBench {
 public:
  explicit FusedBench(const FusedOptions& options)
      : options_(options),
        shape_(parse_shape(options.shape)),
        ctx_({.device = Device::cuda()}),
        noise_(ctx_, 1.f),
        weight_(Noise(ctx_, 0.02f).matrix(DType::f32, shape_.second, shape_.first, 1)),
        bias_(Noise(ctx_, 0.1f).matrix(DType::f32, 1, shape_.second, 4)) {}

  void run() {
    dense_ = copies<Linear>(ctx_, [&] { return dense_layer(weight_); });
    for (const std::int64_t rows : options_.rows) run_dense(rows);
    for (const std::string& format : options_.formats) run_packed(format);
  }

 private:
  Linear dense_layer(const Matrix& weight) {
    Linear layer(ctx_, shape_.first, shape_.second, Activation::gelu);
    layer.load(ctx_, weight.view, bias_.view.select(0, 0));
    return layer;
  }

  // x [M, K] and out [M, N] of one dtype. out is filled with numbers that no result has.
  struct Activations {
    Matrix x, out;
  };
  Activations activations(DType dtype, std::int64_t rows) const {
    return {noise_.matrix(dtype, rows, shape_.first, 2),
            noise_.matrix(dtype, rows, shape_.second, 3)};
  }

  template <typename Layer>
  Time time_of(const std::vector<Layer>& layers, const Activations& tensors) {
    return time_calls(ctx_, static_cast<int>(layers.size()), [&](int i) {
      layers[static_cast<std::size_t>(i)].forward(ctx_, tensors.x.view, tensors.out.view);
    });
  }

  void run_dense(std::int64_t rows) {
    const Activations tensors = activations(DType::f32, rows);
    const TracedCall call =
        trace_call(ctx_, [&] { dense_[0].forward(ctx_, tensors.x.view, tensors.out.view); });
    const Time time = time_of(dense_, tensors);
    dense_us_.push_back(time.us);
    Row row{
        {"op", "Linear"}, {"dtype", "f32"}, {"K", shape_.first}, {"N", shape_.second}, {"M", rows}};
    add_time(row, time);
    row["memory"] = dense_[0].bytes();
    row["kernel"] = call.kernel;
    print(row);
  }

  // Compares a layer's output with that of a dense f32 layer for the same x, which has been rounded
  // to the dtype.
  double error_of(const Linear& expected, const Activations& tensors) {
    const Matrix x = in_f32(ctx_, tensors.x.view), found = in_f32(ctx_, tensors.out.view);
    const Activations exact = activations(DType::f32, x.view.shape[0]);
    expected.forward(ctx_, x.view, exact.out.view);
    return relative_error(ctx_, found.view, exact.out.view);
  }

  void run_packed(const std::string& format) {
    const QuantizeOptions packing{.format = parse_weights(format).format};
    const auto layers =
        copies<FusedFP4Linear>(ctx_, [&] { return quantize(ctx_, dense_layer(weight_), packing); });
    // The dense layer of the decoded weights: the difference is the kernel's error alone.
    const Matrix values = noise_.matrix(DType::f32, shape_.second, shape_.first, 5);
    dequantize(ctx_, quantize(ctx_, weight_.view, packing).weight, values.view);
    const Linear decoded = dense_layer(values);
    for (const std::string& dtype : options_.dtypes) {
      for (std::size_t i = 0; i < options_.rows.size(); ++i) {
        const Activations tensors = activations(parse_dtype(dtype), options_.rows[i]);
        const TracedCall call =
            trace_call(ctx_, [&] { layers[0].forward(ctx_, tensors.x.view, tensors.out.view); });
        const double kernel_error = error_of(decoded, tensors);
        const double format_error = error_of(dense_[0], tensors);
        const Time time = time_of(layers, tensors);
        Row row{{"op", "FusedFP4Linear"}, {"format", format},   {"dtype", dtype},
                {"K", shape_.first},      {"N", shape_.second}, {"M", options_.rows[i]}};
        add_time(row, time);
        row["memory"] = layers[0].bytes();
        row["dense_us"] = rounded(dense_us_[i], 3);
        row["faster"] = rounded(dense_us_[i] / time.us, 2);
        row["smaller"] = rounded(
            static_cast<double>(dense_[0].bytes()) / static_cast<double>(layers[0].bytes()), 2);
        row["rel"] = rounded(kernel_error, 6);
        row["rel_dense"] = rounded(format_error, 5);
        row["kernel"] = call.kernel;
        print(row);
      }
    }
  }

  FusedOptions options_;
  Shape shape_;
  Context ctx_;
  Noise noise_;
  Matrix weight_, bias_;  // f32 [out, in], [1, out]
  std::vector<Linear> dense_;
  std::vector<double> dense_us_;  // by options_.rows
};

}  // namespace

void add_fused_linear(CLI::App& app) {
  const auto options = std::make_shared<FusedOptions>();
  CLI::App* command = app.add_subcommand(
      "fused_linear", "FusedFP4Linear with gelu beside the dense f32 layer: time, memory, error");
  command->add_option("--shape", options->shape, "In x out");
  command->add_option("--rows", options->rows, "Batches")->delimiter(',');
  command->add_option("--formats", options->formats, "Formats of the packed weights")
      ->delimiter(',');
  command->add_option("--dtypes", options->dtypes, "Dtypes of the packed layer's activations")
      ->delimiter(',');
  command->callback([options] { FusedBench(*options).run(); });
}

}  // namespace tessera::bench
