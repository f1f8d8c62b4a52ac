// End to end on one model: prompt tokens per second and generated tokens per second, for each
// weight format and thread count, as llama-bench counts them (pp512: one prompt into an empty
// cache; tg128: tokens one by one from an empty cache on, each with its logits). Random tokens:
// only the speed is looked at. Beside the prompt's speed stands what its linear layers alone would
// allow.
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

#include "core/philox.h"
#include "tessera/tessera.h"

namespace {

using namespace tessera;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string model;
  std::vector<std::string> weights{"dense", "int8", "int4:32", "nvfp4"};
  std::vector<int> threads{2};
  std::int64_t prompt = 512, generate = 128, step = 512;
  std::int64_t stream = 0, sinks = 4, window = 252;
  int repeat = 5;
  std::string device = "cpu", dtype;
  bool exact = false;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::vector<std::int32_t> random_ids(std::int64_t count, std::int64_t vocab) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) {
    const PhiloxWords drawn = philox(1, {static_cast<std::uint32_t>(i), 0, 0, 0});
    ids.push_back(static_cast<std::int32_t>(drawn[0] % static_cast<std::uint32_t>(vocab)));
  }
  return ids;
}

// One model on one Context, fed with ids from memory of the Context's device.
class Runner {
 public:
  Runner(Context& ctx, const Model& model, const Options& options)
      : ctx_(ctx),
        model_(model),
        total_(std::max(options.prompt, options.generate)),
        cache_(model.make_cache(ctx, CachePolicy::full(), total_, options.step)),
        ids_(DType::i32, {total_}, ctx.device()),
        logits_(DType::f32, {1, model.config().vocab}, ctx.device()) {
    const std::vector<std::int32_t> host = random_ids(total_, model.config().vocab);
    copy_bytes(ctx, ids_.data(), ctx.device(), host.data(), Device::cpu(), ids_.bytes());
  }

  // `count` tokens from an empty cache on, at most `step` at once, each step with its last logits.
  double run(std::int64_t count, std::int64_t step) {
    cache_.clear();
    const Clock::time_point start = Clock::now();
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t tokens = cache_.step_size(std::min(step, count - done));
      const CacheStep cache_step = cache_.step(ctx_, tokens);
      model_.forward(ctx_, {.ids = ids_.tensor(DType::i32, {total_}).slice(0, done, done + tokens),
                            .step = &cache_step,
                            .cache = &cache_,
                            .logits = logits_.tensor(DType::f32, {1, model_.config().vocab})});
      done += tokens;
    }
    ctx_.synchronize();
    return seconds_since(start);
  }

 private:
  Context& ctx_;
  const Model& model_;
  std::int64_t total_;
  KvCache cache_;
  Buffer ids_, logits_;
};

// The time of the model's linear layers alone on `rows` rows; the head takes one.
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

nlohmann::json measure_speed(Context& ctx, const Model& model, const std::string& weights,
                             const Options& options) {
  Runner runner(ctx, model, options);

  std::vector<double> prompt, generate, linears;
  for (int repeat = 0; repeat <= options.repeat; ++repeat) {  // the first warms up
    const double prompt_seconds = runner.run(options.prompt, options.step);
    const double generate_seconds = runner.run(options.generate, 1);
    const double linear_time =
        ctx.device().is_cpu() ? linear_seconds(ctx, model, std::min(options.prompt, options.step))
                              : 0.0;
    if (repeat == 0) continue;
    prompt.push_back(static_cast<double>(options.prompt) / prompt_seconds);
    generate.push_back(static_cast<double>(options.generate) / generate_seconds);
    linears.push_back(linear_time);
  }
  const auto rounded = [](double value) { return std::round(value * 10) / 10; };
  nlohmann::json row{{"weights", weights},
                     {"threads", ctx.threads()},
                     {"device", to_string(ctx.device())},
                     {"weight_bytes", model.weight_bytes()},
                     {fmt::format("pp{}", options.prompt), rounded(median(prompt))},
                     {fmt::format("tg{}", options.generate), rounded(median(generate))},
                     {"spread_tg",
                      {rounded(*std::min_element(generate.begin(), generate.end())),
                       rounded(*std::max_element(generate.begin(), generate.end()))}}};
  if (ctx.device().is_cpu()) {
    const double alone = static_cast<double>(std::min(options.prompt, options.step)) /
                         median(linears);  // tokens per second
    row["linear_alone"] = rounded(alone);
    row["of_linear_alone"] = std::round(median(prompt) / alone * 100) / 100;
  }
  return row;
}

// ---- an endless stream --------------------------------------------------------------------------

// Medians of blocks of tokens around 2 thousand, and then around each power of ten: a single token
// is too short to time, and a median leaves out what else the machine does.
void measure_stream(Context& ctx, const Model& model, const Options& options) {
  constexpr std::int64_t kBlock = 64, kBlocks = 25, kYoung = 2000;
  const std::vector<std::int32_t> host = random_ids(4096, model.config().vocab);
  const CachePolicy policy = CachePolicy::sinks(options.sinks, options.window);
  KvCache cache = model.make_cache(ctx, policy, 0, 1);
  Buffer id(DType::i32, {1}, ctx.device());
  Buffer logits(DType::f32, {1, model.config().vocab}, ctx.device());
  const auto block_seconds = [&](std::int64_t tokens) {
    const Clock::time_point start = Clock::now();
    for (std::int64_t i = 0; i < tokens; ++i) {
      copy_bytes(ctx, id.data(), ctx.device(), &host[static_cast<std::size_t>(cache.seen() % 4096)],
                 Device::cpu(), id.bytes());
      const CacheStep step = cache.step(ctx, 1);
      model.forward(ctx, {.ids = id.tensor(DType::i32, {1}),
                          .step = &step,
                          .cache = &cache,
                          .logits = logits.tensor(DType::f32, {1, model.config().vocab})});
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

std::optional<DType> parse_dtype(const std::string& text) {
  if (text.empty()) return {};
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    if (text == name(dtype)) return dtype;
  }
  throw Error(ErrorCode::invalid_argument, "--dtype is f32, f16 or bf16, not " + text);
}

void measure(const Options& options, const std::string& weights, int threads) {
  Context ctx({.device = options.device == "cuda" ? Device::cuda() : Device::cpu(),
               .threads = threads,
               .activations = options.exact ? Activations::exact : Activations::int8});
  LoadOptions load{.dtype = parse_dtype(options.dtype)};
  if (weights != "dense") {
    const std::size_t colon = weights.find(':');
    load.pack = QuantizeOptions{.format = parse_format(weights.substr(0, colon))};
    if (colon != std::string::npos) load.pack->group = std::stoll(weights.substr(colon + 1));
  }
  const std::unique_ptr<Model> model = load_model(ctx, options.model, load);
  if (options.stream > 0) {
    measure_stream(ctx, *model, options);
    return;
  }
  const nlohmann::json row = measure_speed(ctx, *model, weights, options);
  fmt::print("{}\n", row.dump());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Prompt and generation speed of one model, one JSON object for each combination");
  app.add_option("--model", options.model, "Folder of a checkpoint")->required();
  app.add_option("--weights", options.weights,
                 "dense, or a format to pack into, as int4 or int4:32 (groups of 32)")
      ->delimiter(',');
  app.add_option("--threads", options.threads, "Thread counts")->delimiter(',');
  app.add_option("--prompt", options.prompt, "Tokens of the prompt")->check(CLI::PositiveNumber);
  app.add_option("--generate", options.generate, "Tokens to generate")->check(CLI::PositiveNumber);
  app.add_option("--step", options.step, "Prompt tokens of one pass")->check(CLI::PositiveNumber);
  app.add_option("--repeat", options.repeat, "Runs; the median counts")->check(CLI::PositiveNumber);
  app.add_option("--device", options.device, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--dtype", options.dtype, "Of activations: f32, f16, bf16");
  app.add_option("--stream", options.stream, "Instead: one stream of so many tokens, with sinks")
      ->check(CLI::Range(std::int64_t{10'000}, std::int64_t{1} << 40));
  app.add_option("--sinks", options.sinks, "With --stream: first tokens that stay");
  app.add_option("--window", options.window, "With --stream: last tokens that stay");
  app.add_flag("--exact", options.exact, "No rounding of activations to 8 bits");
  app.footer("Example:\n  bench_generate --model DIR --weights dense,int4 --threads 1,2");
  CLI11_PARSE(app, argc, argv);
  try {
    for (const int threads : options.threads) {
      for (const std::string& weights : options.weights) {
        measure(options, weights, threads);
      }
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_generate: {}\n", error.what());
    return 1;
  }
  return 0;
}
