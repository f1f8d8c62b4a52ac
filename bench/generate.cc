// End to end on one model: prompt tokens per second and generated tokens per second, for each
// weight format and thread count. They are counted as in llama-bench: pp512 is one prompt into an
// empty cache; tg128 is tokens one by one, each with its logits, from an empty cache or after
// --context tokens; with --sample, tokens that generate() draws. Tokens are random, and with
// --shape so are the weights: only the speed matters.
//
// The speed of the prompt is shown beside the speed that its linear layers alone would allow. The
// time of a token is shown beside its floor: reading the weights of the linear layers (with the
// head) and the keys and values it sees once, at the memory speed measured in the same run.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench_model.h"
#include "core/build_config.h"
#include "cuda/linear/choose.h"
#include "engine/step_runner.h"
#include "profile/ceilings.h"
#include "profile/engine_run.h"
#include "tessera/tessera.h"

namespace {

using namespace tessera;
using Clock = std::chrono::steady_clock;

struct Options {
  bench::ModelChoice model;
  std::vector<std::string> weights{"dense", "int8", "int4:32", "nvfp4"};
  std::vector<int> threads{2};
  std::int64_t prompt = 512, generate = 128, context = 0, step = 512;
  std::int64_t stream = 0, sinks = 4, window = 252;
  int repeat = 5;
  std::string device = "cpu";
  std::string linear_kernel;  // empty: what linear() chooses
  bool exact = false, no_graphs = false, sample = false;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// One model on one Context.
class Runner {
 public:
  Runner(Context& ctx, const Model& model, const Options& options)
      : ctx_(ctx),
        model_(model),
        total_(std::max(options.prompt, options.context + options.generate)),
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
  // The same for tokens as a user gets them: generate() draws each, and feeds it to the model.
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

// The bytes that one generated token has to read.
std::int64_t bytes_per_token(const Model& model, const Options& options) {
  std::int64_t weights = 0;
  for (const LayerInfo& layer : model.linear_layers()) weights += layer.weight.bytes();
  const ModelConfig& config = model.config();
  // Each token sees itself and all tokens before it, or a layer's window. This is the mean over the
  // generated tokens.
  const std::int64_t seen = options.context + (options.generate + 1) / 2;
  std::int64_t keys = config.windows.empty() ? config.layers * seen : 0;  // of all layers
  for (const std::int64_t window : config.windows) {
    keys += window > 0 ? std::min(window, seen) : seen;
  }
  return weights + 2 * keys * config.kv_heads * config.head_dim * size_of(model.dtype());
}

double rounded(double value, double digits) {
  const double scale = std::pow(10.0, digits);
  return std::round(value * scale) / scale;
}

nlohmann::json measure_speed(Context& ctx, const Model& model, const std::string& weights,
                             double bandwidth, const Options& options) {
  Runner runner(ctx, model, options);
  const std::int64_t rows = std::min(options.prompt, options.step);
  std::vector<double> prompt, generate, linears;              // tokens per second, and seconds
  for (int repeat = 0; repeat <= options.repeat; ++repeat) {  // the first is a warm-up
    const double prompt_seconds = runner.run(0, options.prompt, options.step);
    const double generate_seconds = options.sample
                                        ? runner.run_sampled(options.context, options.generate)
                                        : runner.run(options.context, options.generate, 1);
    const double linear_time = ctx.device().is_cpu() ? linear_seconds(ctx, model, rows) : 0.0;
    if (repeat == 0) continue;
    prompt.push_back(static_cast<double>(options.prompt) / prompt_seconds);
    generate.push_back(static_cast<double>(options.generate) / generate_seconds);
    linears.push_back(linear_time);
  }
  const auto [slowest, fastest] = std::minmax_element(generate.begin(), generate.end());
  const std::int64_t bytes = bytes_per_token(model, options);
  const double token_ms = 1e3 / median(generate);
  const double floor_ms = 1e3 * static_cast<double>(bytes) / bandwidth;
  nlohmann::json row{{"model", options.model.name()},
                     {"weights", weights},
                     {"dtype", name(model.dtype())},
                     {"threads", ctx.threads()},
                     {"device", to_string(ctx.device())},
                     {"weight_bytes", model.weight_bytes()},
                     {"context", options.context},
                     {fmt::format("pp{}", options.prompt), rounded(median(prompt), 1)},
                     {fmt::format("tg{}", options.generate), rounded(median(generate), 1)},
                     {"spread_tg", {rounded(*slowest, 1), rounded(*fastest, 1)}},
                     {"ms_per_token", rounded(token_ms, 4)},
                     {"spread_ms", {rounded(1e3 / *fastest, 4), rounded(1e3 / *slowest, 4)}},
                     {"bytes_per_token", bytes},
                     {"read_bandwidth", std::round(bandwidth)},
                     {"floor_ms", rounded(floor_ms, 4)},
                     {"floor_share", rounded(floor_ms / token_ms, 3)}};
  if (ctx.device().is_cpu()) {
    const double alone = static_cast<double>(rows) / median(linears);  // tokens per second
    row["linear_alone"] = rounded(alone, 1);
    row["of_linear_alone"] = rounded(median(prompt) / alone, 2);
  }
  return row;
}

// ---- an endless stream --------------------------------------------------------------------------

// Medians of blocks of tokens around 2 thousand, and then around each power of ten. A single token
// is too short to time, and a median ignores other load on the machine.
void measure_stream(Context& ctx, const Model& model, const Options& options) {
  constexpr std::int64_t kBlock = 64, kBlocks = 25, kYoung = 2000;
  const std::vector<std::int32_t> host = profile::random_ids(4096, model.config().vocab);
  const CachePolicy policy = CachePolicy::sinks(options.sinks, options.window);
  KvCache cache = model.make_cache(ctx, policy, 0, 1);
  StepRunner runner(ctx, model, 1);
  const auto block_seconds = [&](std::int64_t tokens) {
    const Clock::time_point start = Clock::now();
    for (std::int64_t i = 0; i < tokens; ++i) {
      const std::int32_t& id = host[static_cast<std::size_t>(cache.seen() % 4096)];
      runner.forward(cache.step(ctx, {&id, 1}));
    }
    ctx.synchronize();
    return seconds_since(start);
  };
  double young = 0;
  std::vector<std::int64_t> marks{kYoung};
  for (std::int64_t mark = 10'000; mark < options.stream; mark *= 10) marks.push_back(mark);
  marks.push_back(options.stream);
  for (const std::int64_t mark : marks) {
    block_seconds(std::max<std::int64_t>(1, mark - kBlock * kBlocks - cache.seen()));
    std::vector<double> seconds;
    for (std::int64_t i = 0; i < kBlocks; ++i) seconds.push_back(block_seconds(kBlock));
    const double us = median(seconds) / kBlock * 1e6;
    if (mark == kYoung) young = us;
    fmt::print("{}\n", nlohmann::json{{"tokens", cache.seen()},
                                      {"us_per_token", std::round(us * 100) / 100},
                                      {"of_young", std::round(us / young * 1000) / 1000},
                                      {"cache_bytes", cache.bytes()},
                                      {"workspace_bytes", ctx.workspace_bytes()}}
                           .dump());
    std::fflush(stdout);
  }
}

// ---- the program --------------------------------------------------------------------------------

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
  double bandwidth = 0;
  for (const std::string& weights : options.weights) {
    Context ctx(context_options(options, threads));
    force_linear_kernel(ctx, options.linear_kernel);
    const std::unique_ptr<Model> model = bench::make_model(ctx, options.model, weights);
    if (options.stream > 0) {
      measure_stream(ctx, *model, options);
      continue;
    }
    if (bandwidth == 0) bandwidth = profile::measure_read_bandwidth(ctx);
    fmt::print("{}\n", measure_speed(ctx, *model, weights, bandwidth, options).dump());
    std::fflush(stdout);
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
  app.add_option("--context", options.context, "Tokens before the generated ones, not timed")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--step", options.step, "Prompt tokens of one pass")->check(CLI::PositiveNumber);
  app.add_option("--repeat", options.repeat, "Number of runs; the median is reported")
      ->check(CLI::PositiveNumber);
  app.add_option("--device", options.device, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--linear-kernel", options.linear_kernel,
                 "On a GPU: the kernel of all linear layers that it can run, as cuda.strips");
  app.add_option("--stream", options.stream, "Instead: one stream of this many tokens, with sinks")
      ->check(CLI::Range(std::int64_t{10'000}, std::int64_t{1} << 40));
  app.add_option("--sinks", options.sinks, "With --stream: first tokens to keep");
  app.add_option("--window", options.window, "With --stream: last tokens to keep");
  app.add_flag("--exact", options.exact, "Do not round activations to 8 bits");
  app.add_flag("--sample", options.sample,
               "Time generate(), which draws each token, in place of tokens that are given");
  app.add_flag("--no-graphs", options.no_graphs, "On a GPU: launch every kernel by itself");
  app.footer(
      "Examples:\n"
      "  bench_generate --model DIR --weights dense,int4 --threads 1,2\n"
      "  bench_generate --shape bench/shapes/pythia-2.8b.json --device cuda --context 128");
  CLI11_PARSE(app, argc, argv);
  try {
    for (const int threads : options.threads) measure(options, threads);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_generate: {}\n", error.what());
    return 1;
  }
  return 0;
}
