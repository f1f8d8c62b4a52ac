// linear() for every format: from one token (bound by the weight's bytes) to thousands (bound by
// arithmetic).
#include "tessera/linear.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "core/fail.h"
#include "forced_kernel.h"
#include "noise.h"
#include "options.h"
#include "row.h"
#include "tessera/quant.h"
#include "timer.h"

namespace tessera::bench {
namespace {

std::vector<std::string> dense_and_packed() {
  std::vector<std::string> texts = packed_weights();
  texts.insert(texts.begin(), "dense");
  return texts;
}

struct LinearOptions {
  std::vector<std::string> shapes{"2560x10240", "4096x4096", "4096x14336", "8192x28672",
                                  "768x3072"};
  std::vector<std::int64_t> rows{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096};
  std::vector<std::string> formats = dense_and_packed();
  std::vector<std::string> dtypes{"bf16", "f16"};
  std::string activation = "none";
  bool gated = false, residual = false;
  std::string kernel{};  // empty: the one that linear() chooses
};

Activation parse_activation(const std::string& text) {
  for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu,
                                      Activation::gelu_tanh, Activation::silu}) {
    if (name(activation) == text) return activation;
  }
  fail(ErrorCode::invalid_argument,
       "there is no activation {}; none, relu, gelu, gelu_tanh and silu are accepted", text);
}

// One weight, copied until the copies exceed the cache, and its decoded values.
struct Weights {
  std::vector<PackedWeight> copies{};
  Matrix decoded{};  // f32
};

Weights make_weights(Context& ctx, const Noise& noise, const Shape& shape,
                     const QuantizeOptions& options, DType dtype) {
  const Matrix dense = noise.matrix(dtype, shape.second, shape.first, 1);
  PackedWeight first;
  first.weight = Weight::dense(dense.view);
  if (options.format != Format::dense) first = quantize(ctx, dense.view, options);
  Weights weights;
  weights.decoded.buffer = Buffer(DType::f32, {shape.second, shape.first}, ctx.device());
  weights.decoded.view = weights.decoded.buffer.tensor(DType::f32, {shape.second, shape.first});
  dequantize(ctx, first.weight, weights.decoded.view);
  // An even number: with --gated, a call takes two.
  const int count = (copies_beyond_cache(first.weight.bytes()) + 1) / 2 * 2;
  for (int i = 0; i < count; ++i) weights.copies.push_back(prepare(ctx, first.weight));
  ctx.synchronize();
  return weights;
}

// At most 128 rows from all over the matrix, including the last one. The step is odd, so that they
// fall on every place of a tile.
Tensor some_rows(const Tensor& matrix) {
  const std::int64_t rows = matrix.shape[0], count = std::min<std::int64_t>(rows, 128);
  std::int64_t step = std::max<std::int64_t>(1, (rows - 1) / count);
  if (step % 2 == 0) --step;
  Tensor some = matrix.slice(0, rows - 1 - step * (count - 1), rows);
  some.shape[0] = count;
  some.strides[0] *= step;
  return some;
}

// linear(), or gated_linear() of two weights.
struct Call {
  LinearArgs args;
  Weight up;

  GatedLinearArgs gated() const {
    return {
        .x = args.x, .gate = args.weight, .up = up, .activation = args.activation, .out = args.out};
  }
  void operator()(Context& ctx) const {
    if (up.defined()) return gated_linear(ctx, gated());
    linear(ctx, args);
  }
};

double linear_error(Context& ctx, const Call& call, const Matrix& decoded) {
  const Matrix x = in_f32(ctx, some_rows(call.args.x));
  const Matrix found = in_f32(ctx, some_rows(call.args.out));
  Matrix expected{.buffer = Buffer(found.view.bytes(), ctx.device())};
  expected.view = expected.buffer.tensor(DType::f32, {found.view.shape[0], found.view.shape[1]});
  const Matrix added =
      call.args.residual.defined() ? in_f32(ctx, some_rows(call.args.residual)) : Matrix();
  const Weight dense = Weight::dense(decoded.view);
  const Call exact{.args = {.x = x.view,
                            .weight = dense,
                            .activation = call.args.activation,
                            .residual = added.view,
                            .out = expected.view},
                   .up = call.up.defined() ? dense : Weight()};
  exact(ctx);
  return relative_error(ctx, found.view, expected.view);
}

class LinearBench {
 public:
  explicit LinearBench(const LinearOptions& options)
      : options_(options),
        ctx_({.device = Device::cuda()}),
        activation_(parse_activation(options.activation)),
        activations_noise_(ctx_, 1.f),
        weight_noise_(ctx_, 0.02f),
        ceilings_(measure_ceilings(ctx_)) {}

  void run() {
    print(ceilings_);
    for (const std::string& shape : options_.shapes) {
      for (const std::string& format : options_.formats) {
        for (const std::string& dtype : options_.dtypes) {
          run(parse_shape(shape), format, parse_dtype(dtype));
        }
      }
    }
  }

 private:
  void run(const Shape& shape, const std::string& format, DType dtype) {
    const Weights weights = make_weights(ctx_, weight_noise_, shape, parse_weights(format), dtype);
    for (const std::int64_t rows : options_.rows) {
      const Matrix x = activations_noise_.matrix(dtype, rows, shape.first, 2);
      const Matrix out = activations_noise_.matrix(dtype, rows, shape.second, 3);
      const Matrix added =
          options_.residual ? activations_noise_.matrix(dtype, rows, shape.second, 4) : Matrix();
      // With --gated, two neighbours are gate and up.
      const int of_call = options_.gated ? 2 : 1;
      const auto weight = [&](int i) { return weights.copies[static_cast<std::size_t>(i)].weight; };
      const auto call_of = [&](int i) {
        return Call{.args = {.x = x.view,
                             .weight = weight(i * of_call),
                             .activation = activation_,
                             .residual = options_.residual ? added.view : Tensor(),
                             .out = out.view},
                    .up = options_.gated ? weight(i * of_call + 1) : Weight()};
      };
      const TracedCall call = trace_call(ctx_, [&] { multiply(call_of(0)); });
      const double error = linear_error(ctx_, call_of(0), weights.decoded);
      const Time time = time_calls(ctx_, static_cast<int>(weights.copies.size()) / of_call,
                                   [&](int i) { multiply(call_of(i)); });
      Row row{{"op", options_.gated ? "gated_linear" : "linear"},
              {"format", format},
              {"dtype", name(dtype)},
              {"K", shape.first},
              {"N", shape.second},
              {"M", rows}};
      add_time(row, time);
      row["bytes"] = call.bytes;
      row["floor"] = rounded(ceilings_.floor_us(call.bytes, call.flops), 3);
      row["rel"] = rounded(error, 6);
      row["kernel"] = call.kernel;
      if (activation_ != Activation::none) row["activation"] = options_.activation;
      if (options_.residual) row["residual"] = true;
      print(row);
    }
  }

  void multiply(const Call& call) {
    const ForcedLinearKernel forced(ctx_, options_.kernel);
    call(ctx_);
  }

  LinearOptions options_;
  Context ctx_;
  Activation activation_;
  Noise activations_noise_, weight_noise_;
  Ceilings ceilings_;
};

}  // namespace

void add_linear(CLI::App& app) {
  const auto options = std::make_shared<LinearOptions>();
  CLI::App* command = app.add_subcommand("linear", "linear() by shape, rows and format");
  command->add_option("--shapes", options->shapes, "K x N of each layer")->delimiter(',');
  command->add_option("--rows", options->rows, "Tokens (rows of x), M")->delimiter(',');
  command
      ->add_option("--formats", options->formats,
                   "dense (in the activations' dtype) or a packed format; int4:32 has groups of "
                   "32, int4z zero points")
      ->delimiter(',');
  command->add_option("--dtypes", options->dtypes, "Of activations")->delimiter(',');
  command->add_option("--activation", options->activation, "none, relu, gelu, gelu_tanh, silu");
  CLI::Option* gated =
      command->add_flag("--gated", options->gated, "gated_linear() of two such layers");
  command->add_flag("--residual", options->residual, "Add a residual")->excludes(gated);
  command->add_option("--kernel", options->kernel,
                      "Use this kernel instead of the one that linear() chooses: cuda.strips, ...");
  command->callback([options] { LinearBench(*options).run(); });
}

}  // namespace tessera::bench
