// Many requests on one model, end to end through the Engine. One JSON object for each setting.
//
//   --streams 1,8,16   that many equal requests at once, as llama.cpp's batched bench counts: the
//                      speed of reading all prompts, the speed of all streams together, and the
//                      time of a step beside its floor (weights and the keys and values of all
//                      sequences read once, at the memory speed measured in the same run)
//   --trace FILE       requests that arrive over time: a JSON object on each line, {"at": seconds,
//                      "prefix": shared tokens, "prompt": tokens, "answer": tokens}; the total
//                      speed, the time to the first token and between tokens, pages and prefix hits
//   --speculate ngram  --streams with and without guesses, in turns, on text that repeats itself
//                      and on text that does not: speed, accept rate, tokens per pass; with
//                      --draft DIR also the guesses of this model
//
// Without --speculate, tokens are random, and with --shape so are the weights: only the speed
// matters.
#include "tessera/engine.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <exception>
#include <fstream>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bench_model.h"
#include "core/cache_dtype.h"
#include "core/checked.h"
#include "core/fail.h"
#include "core/philox.h"
#include "engine_speculation.h"
#include "profile/ceilings.h"
#include "quantile.h"
#include "rounded.h"
#include "tessera/tessera.h"

namespace {

using namespace tessera;
using bench::quantile;
using bench::rounded;
using Clock = std::chrono::steady_clock;

struct Options {
  bench::ModelChoice model;
  std::vector<std::string> weights{"int4:32"};
  std::vector<std::int64_t> streams{1, 8, 16};
  std::string trace;
  std::int64_t prompt = 128, generate = 128;
  std::int64_t max_sequences = 0, max_step = 512, context = 1024;
  int threads = 2, repeat = 3;
  bool batch_invariant = false, exact = false, no_graphs = false;
  std::string device = "cpu";
  std::string cache_dtype;  // empty: Model::cache_dtype()
  std::string speculate, draft, draft_weights = "dense";

  bool measures_speculation() const { return !speculate.empty() || !draft.empty(); }

  std::optional<DType> chosen_cache_dtype() const {
    if (cache_dtype.empty()) return std::nullopt;
    return cache_dtype == "f16"    ? DType::f16
           : cache_dtype == "bf16" ? DType::bf16
           : cache_dtype == "fp8"  ? DType::f8e4m3
           : cache_dtype == "int8" ? DType::i8
                                   : DType::f32;
  }
  // The dtype in which the engine stores keys and values.
  DType stored_dtype(const Context& ctx, const Model& loaded) const {
    return chosen_cache_dtype().value_or(loaded.cache_dtype(ctx));
  }
};

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::vector<std::int32_t> random_ids(std::uint32_t stream, std::int64_t count, std::int64_t vocab) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) {
    const PhiloxWords drawn = philox(1, {static_cast<std::uint32_t>(i), stream, 0, 0});
    ids.push_back(static_cast<std::int32_t>(drawn[0] % static_cast<std::uint32_t>(vocab)));
  }
  return ids;
}

// When each token of a request came.
struct Timeline {
  Clock::time_point submitted{};
  std::vector<Clock::time_point> tokens{};
};

Request request_of(std::vector<std::int32_t> prompt, std::int64_t answer, Timeline& timeline,
                   std::shared_ptr<std::latch> ended = nullptr) {
  Request request;
  request.prompt_ids = std::move(prompt);
  request.options = {.max_tokens = answer, .ignore_eos = true, .sampling = {.greedy = true}};
  timeline.tokens.reserve(static_cast<std::size_t>(answer));
  request.on_event = [&timeline, ended = std::move(ended)](const Event& event) {
    if (event.kind == Event::Kind::token) timeline.tokens.push_back(Clock::now());
    if (event.kind == Event::Kind::failed) fmt::print(stderr, "{}\n", event.message);
    if (event.kind != Event::Kind::token && ended != nullptr) ended->count_down();
  };
  timeline.submitted = Clock::now();
  return request;
}

// ---- equal streams -----------------------------------------------------------------------------

// Calls submit_all() on the engine's thread, at the end of a request of one token: no step begins
// before it has returned. Requests that are submitted one by one would begin in several steps, and
// few of them would run together to the end.
void submit_between_steps(Engine& engine, const std::function<void()>& submit_all) {
  // Shared, because the engine's thread may still be in set_value() when the wait is over.
  const auto done = std::make_shared<std::promise<void>>();
  Request gate{.prompt_ids = {0}, .options = {.max_tokens = 1, .ignore_eos = true}};
  gate.on_event = [done, &submit_all](const Event& event) {
    if (event.kind == Event::Kind::token) return;
    try {
      submit_all();
      done->set_value();
    } catch (...) {
      done->set_exception(std::current_exception());
    }
  };
  engine.submit(std::move(gate));
  done->get_future().get();
}

std::int64_t weight_bytes_read(const Model& model) {
  std::int64_t bytes = 0;
  for (const LayerInfo& layer : model.linear_layers()) bytes += layer.weight.bytes();
  return bytes;
}

std::int64_t kv_bytes_of_token(const ModelConfig& config, DType dtype) {
  const std::int64_t scale = has_scales(dtype) ? size_of(DType::f32) : 0;
  return 2 * config.layers * config.kv_heads * (config.head_dim * size_of(dtype) + scale);
}

nlohmann::json measure_streams(Context& ctx, const Model& model, const Options& options,
                               std::int64_t streams, double bandwidth) {
  const std::int64_t vocab = model.config().vocab;
  std::vector<double> prompt_speed, stream_speed, total_speed, steps;
  Engine engine(ctx, model, nullptr,
                {.context = options.prompt + options.generate,
                 .max_sequences = streams,
                 .max_step_tokens = options.max_step,
                 .cache_dtype = options.chosen_cache_dtype(),
                 .prefix_cache = false,
                 .batch_invariant = options.batch_invariant});
  // The first run is a warm-up. It also touches the pages of keys and values: the time in which the
  // system finds memory for them is not the model's.
  for (int repeat = 0; repeat <= options.repeat; ++repeat) {
    std::vector<Timeline> timelines(static_cast<std::size_t>(streams));
    const auto ended =
        std::make_shared<std::latch>(streams);  // the last event may outlive this run
    Clock::time_point start;
    submit_between_steps(engine, [&] {
      start = Clock::now();
      for (std::size_t i = 0; i < timelines.size(); ++i) {
        engine.submit(request_of(random_ids(static_cast<std::uint32_t>(i), options.prompt, vocab),
                                 options.generate, timelines[i], ended));
      }
    });
    ended->wait();
    if (repeat == 0) continue;
    Clock::time_point all_read = start, end = start;
    for (const Timeline& timeline : timelines) {
      all_read = std::max(all_read, timeline.tokens.front());
      end = std::max(end, timeline.tokens.back());
    }
    // Steps of all streams and nothing else: those of the stream that began last.
    const auto last = std::max_element(
        timelines.begin(), timelines.end(),
        [](const Timeline& a, const Timeline& b) { return a.tokens.front() < b.tokens.front(); });
    std::int64_t after = 0;  // tokens after every prompt was read
    for (const Timeline& timeline : timelines) {
      after += std::count_if(timeline.tokens.begin(), timeline.tokens.end(),
                             [&](Clock::time_point t) { return t > all_read; });
    }
    for (std::size_t i = 1; i < last->tokens.size(); ++i) {
      const bool all_run = std::all_of(timelines.begin(), timelines.end(), [&](const Timeline& t) {
        return t.tokens.back() >= last->tokens[i];
      });
      if (all_run) steps.push_back(seconds_between(last->tokens[i - 1], last->tokens[i]));
    }
    const double n = static_cast<double>(streams);
    prompt_speed.push_back(n * static_cast<double>(options.prompt) /
                           seconds_between(start, all_read));
    stream_speed.push_back(static_cast<double>(after) / seconds_between(all_read, end));
    total_speed.push_back(n * static_cast<double>(options.prompt + options.generate) /
                          seconds_between(start, end));
  }
  const std::int64_t seen = options.prompt + options.generate / 2;
  const std::int64_t bytes =
      weight_bytes_read(model) +
      streams * seen * kv_bytes_of_token(model.config(), options.stored_dtype(ctx, model));
  if (steps.empty()) {
    fail(ErrorCode::invalid_argument,
         "the first of {} streams ended before the last had read its prompt: raise --generate, or "
         "--max-step to {} for all prompts in one step",
         streams, checked_mul(streams, options.prompt));
  }
  const double step_ms = 1e3 * quantile(steps, 0.5);
  const double floor_ms = 1e3 * static_cast<double>(bytes) / bandwidth;
  return {{"streams", streams},
          {"prompt_tokens", options.prompt},
          {"answer_tokens", options.generate},
          {"prompt_speed", rounded(quantile(prompt_speed, 0.5), 1)},
          {"stream_speed", rounded(quantile(stream_speed, 0.5), 1)},
          {"total_speed", rounded(quantile(total_speed, 0.5), 1)},
          {"step_ms", rounded(step_ms, 4)},
          {"step_ms_p95", rounded(1e3 * quantile(steps, 0.95), 4)},
          {"floor_ms", rounded(floor_ms, 4)},
          {"of_floor", rounded(step_ms / floor_ms, 2)}};
}

// ---- a trace of arrivals -----------------------------------------------------------------------

struct Arrival {
  double at = 0;  // seconds
  std::int64_t prefix = 0, prompt = 0, answer = 0;
};

std::vector<Arrival> read_trace(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(ErrorCode::file, path + ": cannot be read");
  std::vector<Arrival> arrivals;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    arrivals.push_back({json.at("at"), json.at("prefix"), json.at("prompt"), json.at("answer")});
  }
  return arrivals;
}

nlohmann::json measure_trace(Context& ctx, const Model& model, const Options& options) {
  const std::int64_t vocab = model.config().vocab;
  const std::vector<Arrival> arrivals = read_trace(options.trace);
  Engine engine(ctx, model, nullptr,
                {.context = options.context,
                 .max_sequences = options.max_sequences > 0 ? options.max_sequences : 32,
                 .max_step_tokens = options.max_step,
                 .cache_dtype = options.chosen_cache_dtype(),
                 .batch_invariant = options.batch_invariant,
                 .warm_up = options.device == "cuda"});
  std::vector<Timeline> timelines(arrivals.size());
  const Clock::time_point start = Clock::now();
  std::int64_t prompts = 0, answers = 0;
  for (std::size_t i = 0; i < arrivals.size(); ++i) {
    const Arrival& arrival = arrivals[i];
    // Requests with a prefix of the same length share it.
    std::vector<std::int32_t> prompt = random_ids(0, arrival.prefix, vocab);
    const auto own =
        random_ids(static_cast<std::uint32_t>(i + 1), arrival.prompt - arrival.prefix, vocab);
    prompt.insert(prompt.end(), own.begin(), own.end());
    std::this_thread::sleep_until(start + std::chrono::duration_cast<Clock::duration>(
                                              std::chrono::duration<double>(arrival.at)));
    engine.submit(request_of(std::move(prompt), arrival.answer, timelines[i]));
    prompts += arrival.prompt;
    answers += arrival.answer;
  }
  engine.drain_until(Clock::time_point::max());
  Clock::time_point end = start;
  std::vector<double> first, between;
  for (const Timeline& timeline : timelines) {
    end = std::max(end, timeline.tokens.back());
    first.push_back(1e3 * seconds_between(timeline.submitted, timeline.tokens.front()));
    for (std::size_t i = 1; i < timeline.tokens.size(); ++i) {
      between.push_back(1e3 * seconds_between(timeline.tokens[i - 1], timeline.tokens[i]));
    }
  }
  const EngineStats stats = engine.stats();
  const double seconds = seconds_between(start, end);
  return {{"trace", options.trace.substr(options.trace.find_last_of('/') + 1)},
          {"requests", arrivals.size()},
          {"prompt_tokens", prompts},
          {"answer_tokens", answers},
          {"seconds", rounded(seconds, 3)},
          {"answer_speed", rounded(static_cast<double>(answers) / seconds, 1)},
          {"total_speed", rounded(static_cast<double>(prompts + answers) / seconds, 1)},
          {"first_ms", {rounded(quantile(first, 0.5), 2), rounded(quantile(first, 0.95), 2)}},
          {"token_ms", {rounded(quantile(between, 0.5), 3), rounded(quantile(between, 0.95), 3)}},
          {"slowest_token_ms", rounded(quantile(between, 1.0), 3)},
          {"pages", stats.pages},
          {"pages_peak", stats.pages_peak},
          {"prefix_hit_rate", rounded(stats.prefix_hit_rate(), 3)},
          {"preemptions", stats.preemptions},
          {"steps", stats.steps}};
}

// ---- the program -------------------------------------------------------------------------------

void measure_guesses(Context& ctx, const Model& model, const Options& options,
                     const std::function<void(nlohmann::json)>& print) {
  std::unique_ptr<Model> draft;
  if (!options.draft.empty()) {
    bench::ModelChoice choice = options.model;
    choice.model = options.draft;
    draft = bench::make_model(ctx, choice, options.draft_weights);
  }
  bench::measure_speculation(ctx, model, options.model.model,
                             {.ngram = options.speculate == "ngram",
                              .draft = draft.get(),
                              .streams = options.streams,
                              .generate = options.generate,
                              .max_step = options.max_step,
                              .cache_dtype = options.chosen_cache_dtype(),
                              .repeat = options.repeat},
                             print);
}

void measure(const Options& options) {
  double bandwidth = 0;
  for (const std::string& weights : options.weights) {
    Context ctx({.device = options.device == "cuda" ? Device::cuda() : Device::cpu(),
                 .threads = options.threads,
                 .activations = options.exact ? Activations::exact : Activations::int8,
                 .graphs = !options.no_graphs});
    const std::unique_ptr<Model> model = bench::make_model(ctx, options.model, weights);
    if (bandwidth == 0) bandwidth = profile::measure_read_bandwidth(ctx);
    const auto print = [&](nlohmann::json row) {
      row["model"] = options.model.name();
      row["weights"] = weights;
      row["dtype"] = name(model->dtype());
      row["cache_dtype"] = name(options.stored_dtype(ctx, *model));
      row["device"] = to_string(ctx.device());
      row["threads"] = ctx.threads();
      row["batch_invariant"] = options.batch_invariant;
      row["read_bandwidth"] = std::round(bandwidth);
      fmt::print("{}\n", row.dump());
      std::fflush(stdout);
    };
    if (options.measures_speculation()) {
      measure_guesses(ctx, *model, options, print);
      continue;
    }
    if (!options.trace.empty()) {
      print(measure_trace(ctx, *model, options));
      continue;
    }
    for (const std::int64_t streams : options.streams) {
      print(measure_streams(ctx, *model, options, streams, bandwidth));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures many requests at once on one model: one JSON object for each setting");
  bench::add_model_options(app, options.model);
  app.add_option("--weights", options.weights, bench::kWeightsHelp)->delimiter(',');
  app.add_option("--streams", options.streams, "Equal requests at once")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  app.add_option("--trace", options.trace, "Instead: requests that arrive over time, from a file")
      ->check(CLI::ExistingFile);
  CLI::Option* speculate =
      app.add_option("--speculate", options.speculate,
                     "Instead: --streams of text, with and without guesses of this kind; needs the "
                     "tokenizer of --model")
          ->check(CLI::IsMember({"ngram", "off"}));
  CLI::Option* draft =
      app.add_option("--draft", options.draft, "The same, with the guesses of this smaller model")
          ->check(CLI::ExistingDirectory);
  app.add_option("--draft-weights", options.draft_weights, "Weights of --draft, as for --weights")
      ->needs(draft);
  for (CLI::Option* option : {speculate, draft}) {
    option->excludes("--shape")->excludes("--trace");
  }
  app.add_option("--prompt", options.prompt, "With --streams: tokens of each prompt")
      ->check(CLI::PositiveNumber);
  app.add_option("--generate", options.generate, "With --streams: tokens of each answer")
      ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 30));
  app.add_option("--max-sequences", options.max_sequences,
                 "With --trace: requests that run at the same time");
  app.add_option("--max-step", options.max_step, "Tokens of one step")->check(CLI::PositiveNumber);
  app.add_option("--context", options.context, "With --trace: tokens of the longest sequence")
      ->check(CLI::PositiveNumber);
  app.add_option("--threads", options.threads, "CPU threads")->check(CLI::PositiveNumber);
  app.add_option("--repeat", options.repeat, "Runs with --streams; the median is reported")
      ->check(CLI::PositiveNumber);
  app.add_option("--device", options.device, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--cache-dtype", options.cache_dtype,
                 "Type of keys and values; by default the model's, and f16 where the CPU rounds "
                 "activations to 8 bits")
      ->check(CLI::IsMember({"f32", "f16", "bf16", "fp8", "int8"}));
  app.add_flag("--batch-invariant", options.batch_invariant,
               "On a GPU: the same bits for any number of streams");
  app.add_flag("--exact", options.exact, "Do not round activations to 8 bits");
  app.add_flag("--no-graphs", options.no_graphs, "On a GPU: launch every kernel by itself");
  app.footer(
      "Examples:\n"
      "  bench_engine --shape bench/shapes/pythia-160m.json --weights int4:32 --streams 1,8,16\n"
      "  bench_engine --shape bench/shapes/pythia-2.8b.json --device cuda --weights f16 \\\n"
      "      --trace bench/traces/arrivals-64.jsonl\n"
      "  bench_engine --model models/stories --weights dense --streams 1,4 --speculate ngram");
  CLI11_PARSE(app, argc, argv);
  try {
    measure(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_engine: {}\n", error.what());
    return 1;
  }
  return 0;
}
