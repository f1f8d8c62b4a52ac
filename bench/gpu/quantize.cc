// quantize(): the time to pack a matrix that is already on the GPU. quantize() waits for the
// device, so this is wall time.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "noise.h"
#include "options.h"
#include "row.h"
#include "tessera/quant.h"

namespace tessera::bench {
namespace {

struct QuantizeBenchOptions {
  std::vector<std::string> shapes{"4096x14336"};  // K x N
  std::vector<std::string> formats = packed_weights();
  std::vector<std::string> dtypes{"bf16"}, searches{"least_squares", "from_max"};
};

void run_quantize(Context& ctx, const Noise& noise, const Shape& shape, const std::string& format,
                  DType dtype, const std::string& search) {
  using Clock = std::chrono::steady_clock;
  constexpr int kRounds = 7;
  const Matrix dense = noise.matrix(dtype, shape.second, shape.first, 1);
  QuantizeOptions options = parse_weights(format);
  options.search = search == "from_max" ? ScaleSearch::from_max : ScaleSearch::least_squares;
  std::vector<double> seconds;
  for (int round = -2; round < kRounds; ++round) {
    ctx.synchronize();
    const Clock::time_point start = Clock::now();
    const PackedWeight packed = quantize(ctx, dense.view, options);
    ctx.synchronize();
    const std::chrono::duration<double> elapsed = Clock::now() - start;
    if (round >= 0) seconds.push_back(elapsed.count());
  }
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  const auto weights = static_cast<double>(shape.first * shape.second);
  print(Row{{"op", "quantize"},
            {"format", format},
            {"search", search},
            {"dtype", name(dtype)},
            {"K", shape.first},
            {"N", shape.second},
            {"ms", rounded(median * 1e3, 3)},
            {"spread", {rounded(seconds.front() * 1e3, 3), rounded(seconds.back() * 1e3, 3)}},
            {"weights_per_s", rounded(weights / median, 0)},
            {"seconds_for_7b", rounded(7e9 / weights * median, 3)}});
}

void run_quantize_rows(const QuantizeBenchOptions& options) {
  Context ctx({.device = Device::cuda()});
  const Noise noise(ctx, 0.02f);
  for (const std::string& shape : options.shapes) {
    for (const std::string& format : options.formats) {
      for (const std::string& dtype : options.dtypes) {
        for (const std::string& search : options.searches) {
          run_quantize(ctx, noise, parse_shape(shape), format, parse_dtype(dtype), search);
        }
      }
    }
  }
}

}  // namespace

void add_quantize(CLI::App& app) {
  const auto options = std::make_shared<QuantizeBenchOptions>();
  CLI::App* command = app.add_subcommand("quantize", "quantize() by format: wall time");
  command->add_option("--shapes", options->shapes, "K x N of each layer")->delimiter(',');
  command->add_option("--formats", options->formats, "Formats, as for linear")->delimiter(',');
  command->add_option("--dtypes", options->dtypes, "Dtypes of the dense weight")->delimiter(',');
  command->add_option("--searches", options->searches, "least_squares, from_max")
      ->delimiter(',')
      ->check(CLI::IsMember({"least_squares", "from_max"}));
  command->callback([options] { run_quantize_rows(*options); });
}

}  // namespace tessera::bench
