// End to end on one model: prompt tokens per second and generated tokens per second, for each
// weight format and thread count. They are counted as in llama-bench: pp512 is one prompt into an
// empty cache; tg128 is tokens one by one, each with its logits, from an empty cache or after
// --context tokens. With --sample, generate() draws the tokens. Otherwise they are random, and with
// --shape so are the weights: only the speed matters.
//
// The speed of the prompt is shown beside the speed that its linear layers alone would allow: on
// the CPU they are run by themselves; on a GPU their arithmetic is divided by the rate of a large
// product, measured in the same run. The time of a token is shown beside its floor: reading the
// weights of the linear layers (with the head) and the keys and values it sees once, at the memory
// speed measured in the same run.
//
// With --stream, instead: generate_stream.h.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench_model.h"
#include "core/build_config.h"
#include "cuda/linear/choose.h"
#include "engine/step_runner.h"
#include "generate_stream.h"
#include "profile/ceilings.h"
#include "profile/engine_run.h"
#include "profile/timing.h"
#include "random_matrix.h"
#include "rounded.h"
#include "tessera/convert.h"
#include "tessera/tessera.h"

namespace {

using namespace tessera;
using bench::rounded;
using profile::Clock;
using profile::seconds_since;

struct Options {
  bench::ModelChoice model;
  std::vector<std::string> weights{"dense", "int8", "int4:32", "nvfp4"};
  std::vector<int> threads{2};
  std::int64_t prompt = 512, generate = 128, step = 512;
  std::vector<std::int64_t> contexts{0};
  bench::StreamOptions stream;
  int repeat = 5;
  std::string device = "cpu";
  std::string linear_kernel;  // empty: what linear() chooses
  bool exact = false, no_graphs = false, sample = false;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// One model on one Context.
class Runner {
 public:
  Runner(Context& ctx, const Model& model, const Options& options, std::int64_t context)
      : ctx_(ctx),
        model_(model),
        total_(std::max(options.prompt, context + options.generate)),
        step_(options.step),
        cache_(model.make_cache(ctx, CachePolicy::full(), total_, options.step)),
        ids_(profile::random_ids(total_, model.config().vocab)) {}

  // Runs `count` tokens after `context` others, at most `step` at once. Each step computes its last
  // logits. Only the `count` tokens are timed.
  double run(std::int64_t context, std::int64_t count, std::int64_t step) {
    cache_.clear();
    if (!runner_) runner_.emplace(ctx_, model_, 1);
    feed(0, context, step_);
    ctx_.synchronize();
    const Clock::time_point start = Clock::now();
    feed(context, context + count, step);
    ctx_.synchronize();
    return seconds_since(start);
  }
  // The same for tokens as a user gets them: generate() draws each and feeds it to the model.
  double run_sampled(std::int64_t context, std::int64_t count) {
    cache_.clear();
    runner_.reset();  // generate() has its own
    const auto prompt =
        std::span<const std::int32_t>(ids_).first(static_cast<std::size_t>(context));
    const GenerateOptions options{
        .max_tokens = count + 1, .ignore_eos = true, .sampling = {.temperature = 0.8, .seed = 1}};
    return generate(ctx_, model_, cache_, nullptr, prompt, options).decode_seconds;
  }

 private:
  void feed(std::int64_t from, std::int64_t to, std::int64_t step) {
    for (std::int64_t done = from; done < to;) {
      const std::int64_t tokens = cache_.step_size(std::min(step, to - done));
      const auto ids = std::span<const std::int32_t>(ids_).subspan(
          static_cast<std::size_t>(done), static_cast<std::size_t>(tokens));
      runner_->forward(cache_.step(ctx_, ids));
      done += tokens;
    }
  }

  Context& ctx_;
  const Model& model_;
  std::int64_t total_, step_;
  KvCache cache_;
  std::vector<std::int32_t> ids_;
  std::optional<StepRunner> runner_;
};

// The time of the model's linear layers alone, on `rows` tokens; the head gets one token.
double linear_seconds(Context& ctx, const Model& model, std::int64_t rows) {
  std::int64_t widest = 0;
  for (const LayerInfo& layer : model.linear_layers()) {
    widest = std::max({widest, layer.weight.in_features, layer.weight.out_features});
  }
  Buffer x(DType::f32, {rows, widest}), out(DType::f32, {rows, widest});
  std::fill_n(static_cast<float*>(x.data()), rows * widest, 0.5f);
  const Clock::time_point start = Clock::now();
  for (const LayerInfo& layer : model.linear_layers()) {
    const bool is_head = layer.weight.out_features == model.config().vocab;
    const std::int64_t m = is_head ? 1 : rows;
    linear(ctx, {.x = x.tensor(DType::f32, {m, layer.weight.in_features}),
                 .weight = layer.weight,
                 .out = out.tensor(DType::f32, {m, layer.weight.out_features})});
  }
  return seconds_since(start);
}

// The flops of these layers.
double linear_flops(const Model& model, std::int64_t rows) {
  double flops = 0;
  for (const LayerInfo& layer : model.linear_layers()) {
    const bool is_head = layer.weight.out_features == model.config().vocab;
    flops += 2.0 * static_cast<double>(layer.weight.out_features * layer.weight.in_features) *
             static_cast<double>(is_head ? 1 : rows);
  }
  return flops;
}

// The rates of the machine, measured in this run.
struct Rates {
  double bandwidth = 0;  // bytes per second
  double products = 0;   // flops per second of a large product of f16 matrices; a GPU's alone
};

// Random numbers and several products in a row: zeros, or a single product, would not warm a GPU up
// to the clock that it keeps.
double product_rate(Context& ctx) {
  constexpr std::int64_t kSide = 8192, kRows = 512;
  constexpr int kRounds = 15, kProducts = 4;
  const Buffer noise = random_matrix(kRows, kSide, 1);
  const Buffer block(DType::f32, {kRows, kSide}, ctx.device());
  copy_bytes(ctx, block.data(), block.device(), noise.data(), Device::cpu(), noise.bytes());
  const Buffer x(DType::f16, {kSide, kSide}, ctx.device());
  const Buffer weight(DType::f16, {kSide, kSide}, ctx.device());
  const Buffer out(DType::f16, {kSide, kSide}, ctx.device());
  for (std::int64_t row = 0; row < kSide; row += kRows) {
    convert(ctx, {.x = block.tensor(), .out = x.tensor().slice(0, row, row + kRows)});
    convert(ctx, {.x = block.tensor(), .out = weight.tensor().slice(0, row, row + kRows)});
  }
  const profile::Timing timing = profile::time_rounds(kRounds, [&] {
    for (int i = 0; i < kProducts; ++i) {
      linear(ctx, {.x = x.tensor(), .weight = Weight::dense(weight.tensor()), .out = out.tensor()});
    }
    ctx.synchronize();
  });
  const double side = static_cast<double>(kSide);
  return 2 * kProducts * side * side * side / timing.median;
}

Rates measure_rates(Context& ctx) {
  return {.bandwidth = profile::measure_read_bandwidth(ctx),
          .products = ctx.device().is_cpu() ? 0 : product_rate(ctx)};
}

// The bytes that one generated token has to read.
std::int64_t bytes_per_token(const Context& ctx, const Model& model, const Options& options,
                             std::int64_t context) {
  std::int64_t weights = 0;
  for (const LayerInfo& layer : model.linear_layers()) weights += layer.weight.bytes();
  const ModelConfig& config = model.config();
  // Each token sees itself and all tokens before it, or a layer's window. This is the mean over the
  // generated tokens.
  const std::int64_t seen = context + (options.generate + 1) / 2;
  std::int64_t keys = config.windows.empty() ? config.layers * seen : 0;  // of all layers
  for (const std::int64_t window : config.windows) {
    keys += window > 0 ? std::min(window, seen) : seen;
  }
  return weights + 2 * keys * config.kv_heads * config.head_dim * size_of(model.cache_dtype(ctx));
}

nlohmann::json measure_speed(Context& ctx, const Model& model, const std::string& weights,
                             const Rates& rates, const Options& options, std::int64_t context) {
  Runner runner(ctx, model, options, context);
  const std::int64_t rows = std::min(options.prompt, options.step);
  std::vector<double> prompt, generate, linears;              // tokens per second, and seconds
  for (int repeat = 0; repeat <= options.repeat; ++repeat) {  // the first is a warm-up
    const double prompt_seconds = runner.run(0, options.prompt, options.step);
    const double generate_seconds = options.sample ? runner.run_sampled(context, options.generate)
                                                   : runner.run(context, options.generate, 1);
    const double linear_time = ctx.device().is_cpu() ? linear_seconds(ctx, model, rows) : 0.0;
    if (repeat == 0) continue;
    prompt.push_back(static_cast<double>(options.prompt) / prompt_seconds);
    generate.push_back(static_cast<double>(options.generate) / generate_seconds);
    linears.push_back(linear_time);
  }
  const auto [slowest, fastest] = std::minmax_element(generate.begin(), generate.end());
  const std::int64_t bytes = bytes_per_token(ctx, model, options, context);
  const double token_ms = 1e3 / median(generate);
  const double floor_ms = 1e3 * static_cast<double>(bytes) / rates.bandwidth;
  nlohmann::json row{{"model", options.model.name()},
                     {"weights", weights},
                     {"dtype", name(model.dtype())},
                     {"cache_dtype", name(model.cache_dtype(ctx))},
                     {"graphs", !options.no_graphs},
                     {"fusion", options.model.fuse_layers},
                     {"threads", ctx.threads()},
                     {"device", to_string(ctx.device())},
                     {"weight_bytes", model.weight_bytes()},
                     {"context", context},
                     {fmt::format("pp{}", options.prompt), rounded(median(prompt), 1)},
                     {fmt::format("tg{}", options.generate), rounded(median(generate), 1)},
                     {"spread_tg", {rounded(*slowest, 1), rounded(*fastest, 1)}},
                     {"ms_per_token", rounded(token_ms, 4)},
                     {"spread_ms", {rounded(1e3 / *fastest, 4), rounded(1e3 / *slowest, 4)}},
                     {"bytes_per_token", bytes},
                     {"read_bandwidth", std::round(rates.bandwidth)},
                     {"floor_ms", rounded(floor_ms, 4)},
                     {"floor_share", rounded(floor_ms / token_ms, 3)}};
  if (ctx.device().is_cpu()) {
    const double alone = static_cast<double>(rows) / median(linears);  // tokens per second
    row["linear_alone"] = rounded(alone, 1);
    row["of_linear_alone"] = rounded(median(prompt) / alone, 2);
  } else {
    const double seconds = static_cast<double>(options.prompt) / median(prompt);
    const double rate = linear_flops(model, options.prompt) / seconds;
    row["prompt_ms"] = rounded(1e3 * seconds, 3);
    row["prompt_tflop_per_s"] = rounded(1e-12 * rate, 1);
    row["product_tflop_per_s"] = rounded(1e-12 * rates.products, 1);
    row["of_product_rate"] = rounded(rate / rates.products, 3);
  }
  return row;
}

ContextOptions context_options(const Options& options, int threads) {
  return {.device = options.device == "cuda" ? Device::cuda() : Device::cpu(),
          .threads = threads,
          .activations = options.exact ? Activations::exact : Activations::int8,
          .graphs = !options.no_graphs};
}

// Runs this GPU kernel wherever it can run, which moves the boundary between two kernels.
void force_linear_kernel(Context& ctx, const std::string& kernel) {
  if (kernel.empty()) return;
  if (ctx.device().is_cpu()) {
    throw Error(ErrorCode::invalid_argument, "--linear-kernel is for a GPU; add --device cuda");
  }
  if constexpr (kHaveCuda) {
    cuda::force_linear_kernel(ctx, kernel, cuda::Forced::where_it_can);
  }
}

void measure(const Options& options, int threads) {
  std::optional<Rates> rates;
  for (const std::string& weights : options.weights) {
    Context ctx(context_options(options, threads));
    force_linear_kernel(ctx, options.linear_kernel);
    const std::unique_ptr<Model> model = bench::make_model(ctx, options.model, weights);
    if (options.stream.tokens > 0) {
      bench::StreamOptions stream = options.stream;
      stream.sample = options.sample;
      bench::measure_stream(ctx, *model, stream, options.step, options.model.name(), weights);
      continue;
    }
    if (!rates) rates = measure_rates(ctx);
    for (const std::int64_t context : options.contexts) {
      fmt::print("{}\n", measure_speed(ctx, *model, weights, *rates, options, context).dump());
      std::fflush(stdout);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Measures the prompt and generation speed of one model: one JSON object for each "
      "combination");
  bench::add_model_options(app, options.model);
  app.add_option("--weights", options.weights, bench::kWeightsHelp)->delimiter(',');
  app.add_option("--threads", options.threads, "Thread counts")->delimiter(',');
  app.add_option("--prompt", options.prompt, "Tokens of the prompt")->check(CLI::PositiveNumber);
  app.add_option("--generate", options.generate, "Tokens to generate")->check(CLI::PositiveNumber);
  app.add_option("--context", options.contexts, "Tokens before the generated ones, not timed")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber);
  app.add_option("--step", options.step,
                 "Prompt tokens of one pass; with --stream: tokens of one pass between marks")
      ->check(CLI::PositiveNumber);
  app.add_option("--repeat", options.repeat, "Number of runs; the median is reported")
      ->check(CLI::PositiveNumber);
  app.add_option("--device", options.device, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--linear-kernel", options.linear_kernel,
                 "On a GPU: the kernel for all linear layers that it can run, such as cuda.strips");
  app.add_option("--stream", options.stream.tokens,
                 "Instead: one stream of this many tokens, with sinks. A token is timed at 2,000, "
                 "10,000, 100,000, 1,000,000, 4,000,000 and at the end")
      ->check(CLI::Range(std::int64_t{10'000}, std::int64_t{1} << 40));
  app.add_option("--sinks", options.stream.sinks, "With --stream: first tokens to keep");
  app.add_option("--window", options.stream.window, "With --stream: last tokens to keep");
  app.add_flag("--exact", options.exact, "Do not round activations to 8 bits");
  app.add_flag("--sample", options.sample,
               "Time generate(), which draws each token, instead of passes over given tokens");
  app.add_flag("--no-graphs", options.no_graphs, "On a GPU: launch every kernel by itself");
  app.footer(
      "Examples:\n"
      "  bench_generate --model DIR --weights dense,int4 --threads 1,2\n"
      "  bench_generate --shape bench/shapes/pythia-2.8b.json --device cuda --context 128\n"
      "  bench_generate --model models/stories --device cuda --weights dense --stream 4000000");
  CLI11_PARSE(app, argc, argv);
  try {
    for (const int threads : options.threads) measure(options, threads);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_generate: {}\n", error.what());
    return 1;
  }
  return 0;
}
