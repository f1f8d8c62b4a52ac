// layer_norm and rms_norm with up to three residuals: bound by memory for many rows, by the launch
// for one.
#include "tessera/norm.h"

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "noise.h"
#include "options.h"
#include "row.h"
#include "timer.h"

namespace tessera::bench {
namespace {

struct NormOptions {
  std::vector<std::string> shapes{"1x2560", "1024x2560", "16384x4096"};  // rows x width
  std::vector<int> residuals{0, 1, 2, 3};
  std::vector<std::string> dtypes{"bf16"}, ops{"layer_norm", "rms_norm"};
  float dropout = 0;  // dropout of x, if there are residuals
};

// The tensors of one call: x, residuals, sum, out.
struct NormTensors {
  std::vector<Matrix> matrices{};
  NormArgs args{};
};

NormTensors make_norm_tensors(const Noise& noise, const Shape& shape, DType dtype, int residuals,
                              std::uint32_t seed) {
  NormTensors made;
  const auto make = [&] {
    const auto n = static_cast<std::uint32_t>(made.matrices.size());
    made.matrices.push_back(noise.matrix(dtype, shape.first, shape.second, 6 * seed + n));
    return made.matrices.back().view;
  };
  made.args.x = make();
  for (int r = 0; r < residuals; ++r) made.args.residuals[static_cast<std::size_t>(r)] = make();
  if (residuals > 0) made.args.sum = make();
  made.args.out = make();
  return made;
}

class NormBench {
 public:
  NormBench()
      : ctx_({.device = Device::cuda()}), noise_(ctx_, 1.f), ceilings_(measure_ceilings(ctx_)) {}

  void run(const NormOptions& options) {
    print(ceilings_);
    for (const std::string& shape : options.shapes) {
      for (const std::string& dtype : options.dtypes) {
        for (const std::string& op : options.ops) {
          for (const int residuals : options.residuals) {
            run(op, parse_shape(shape), parse_dtype(dtype), residuals,
                residuals > 0 ? options.dropout : 0.f);
          }
        }
      }
    }
  }

 private:
  void run(const std::string& op, const Shape& shape, DType dtype, int residuals, float dropout) {
    const auto norm = op == "rms_norm" ? rms_norm : layer_norm;
    const Matrix weight = noise_.matrix(dtype, 1, shape.second, 1);
    const Matrix bias = noise_.matrix(dtype, 1, shape.second, 2);
    const std::int64_t bytes_of_one = shape.first * shape.second * size_of(dtype);
    std::vector<NormTensors> sets;
    for (int i = 0; i < copies_beyond_cache(bytes_of_one * (2 + residuals), 64); ++i) {
      NormTensors& set = sets.emplace_back(
          make_norm_tensors(noise_, shape, dtype, residuals, static_cast<std::uint32_t>(i)));
      set.args.weight = weight.view.select(0, 0);
      set.args.dropout = {dropout, static_cast<std::uint64_t>(i)};
      if (op != "rms_norm") set.args.bias = bias.view.select(0, 0);
    }
    const auto call = [&](int i) { norm(ctx_, sets[static_cast<std::size_t>(i)].args); };
    const TracedCall traced = trace_call(ctx_, [&] { call(0); });
    const double error = error_of(norm, sets[0].args);
    const Time time = time_calls(ctx_, static_cast<int>(sets.size()), call);
    Row row{{"op", op},
            {"dtype", name(dtype)},
            {"rows", shape.first},
            {"width", shape.second},
            {"residuals", residuals}};
    add_time(row, time);
    row["bytes"] = traced.bytes;
    row["tb_per_s"] = rounded(static_cast<double>(traced.bytes) / time.us * 1e-6, 3);
    row["floor"] = rounded(ceilings_.floor_us(traced.bytes), 3);
    row["rel"] = rounded(error, 6);
    row["kernel"] = traced.kernel;
    if (dropout > 0) row["dropout"] = dropout;
    print(row);
  }

  // The error against the f32 norm of the sum that the call wrote.
  double error_of(void (*norm)(Context&, const NormArgs&), const NormArgs& args) {
    const Matrix x = in_f32(ctx_, args.sum.defined() ? args.sum : args.x);
    const Matrix found = in_f32(ctx_, args.out), expected = in_f32(ctx_, args.out);
    norm(ctx_, {.x = x.view, .weight = args.weight, .bias = args.bias, .out = expected.view});
    return relative_error(ctx_, found.view, expected.view);
  }

  Context ctx_;
  Noise noise_;
  Ceilings ceilings_;
};

}  // namespace

void add_norm(CLI::App& app) {
  const auto options = std::make_shared<NormOptions>();
  CLI::App* command = app.add_subcommand("norm", "layer_norm and rms_norm with residuals");
  command->add_option("--shapes", options->shapes, "Rows x width")->delimiter(',');
  command->add_option("--residuals", options->residuals, "0 to 3")
      ->delimiter(',')
      ->check(CLI::Range(0, 3));
  command->add_option("--dtypes", options->dtypes, "f32, f16, bf16")->delimiter(',');
  command
      ->add_option("--dropout", options->dropout, "Probability of dropout, if there are residuals")
      ->check(CLI::Range(0.0, 0.999));
  command->add_option("--ops", options->ops, "layer_norm, rms_norm")
      ->delimiter(',')
      ->check(CLI::IsMember({"layer_norm", "rms_norm"}));
  command->callback([options] { NormBench().run(*options); });
}

}  // namespace tessera::bench
