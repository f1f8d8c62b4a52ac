// tessera demo: a story from the bundled model, then a stream far past the length the model was
// trained for, with three caches: attention sinks, plain eviction of the oldest tokens, and one
// that keeps everything. The model then reads each passage afresh: its perplexity says whether the
// passage is still English.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "commands.h"
#include "default_model.h"
#include "kernels_demo.h"
#include "option_checks.h"
#include "output.h"
#include "tessera/tessera.h"

namespace tessera::app {
namespace {

struct DemoFlags {
  int threads = 0;
  std::int64_t tokens = 0;  // of the stream; 0: as many as a short demo has time for
  std::uint64_t seed = 7;
  bool kernels = false, json = false;
};

constexpr std::int64_t kSinks = 4;     // what StreamingLLM found to be enough
constexpr std::int64_t kStory = 300;   // tokens at most
constexpr std::int64_t kReread = 128;  // tokens of a passage that is read again
constexpr std::int64_t kLengths = 6;   // the stream's, in lengths that the model was trained for
constexpr double kSeconds = 18;        // the whole demo, where --tokens does not say otherwise

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string in_megabytes(std::int64_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

SamplingOptions sampling(std::uint64_t seed) {
  return {.temperature = 0.8, .top_p = 0.95, .seed = seed};
}

struct Loaded {
  Context ctx;
  std::unique_ptr<Model> model;
  Tokenizer tokenizer;
  std::vector<std::int32_t> prompt;  // begin token and "Once upon a time"

  explicit Loaded(int threads)
      : ctx({.threads = threads, .activations = Activations::int8}),
        model(load_model(ctx, default_model_path())),
        tokenizer(Tokenizer::from_file(default_model_path())),
        prompt(tokenizer.encode("Once upon a time", {.add_special = true})) {}
};

// ---- the passage read again ---------------------------------------------------------------------

// Perplexity of `ids` as the model reads them from scratch, after its begin token.
double reread_perplexity(Loaded& loaded, std::vector<std::int32_t> ids) {
  ids.insert(ids.begin(), loaded.prompt.front());
  const std::vector<float> nlls = perplexity(loaded.ctx, *loaded.model, ids).nlls;
  // The first half is context only: a model cannot know how a passage from within a story begins.
  const std::size_t begin = nlls.size() / 2;
  const double sum =
      std::accumulate(nlls.begin() + static_cast<std::ptrdiff_t>(begin), nlls.end(), 0.0);
  return std::exp(sum / static_cast<double>(nlls.size() - begin));
}

// ---- a stream -----------------------------------------------------------------------------------

struct Passage {
  std::int64_t tokens;  // of the stream when it ends
  double ms_per_token;
  std::int64_t cache_bytes;
  double perplexity;
  std::string text;
};

// An endless text, block by block.
class Stream {
 public:
  // `total`: all tokens there will ever be, for a cache that keeps them.
  Stream(Loaded& loaded, const CachePolicy& policy, std::int64_t total, std::uint64_t seed)
      : loaded_(loaded),
        cache_(loaded.model->make_cache(loaded.ctx, policy, total)),
        next_(loaded.prompt),
        seed_(seed) {}

  Passage write(std::int64_t tokens) {
    const auto start = std::chrono::steady_clock::now();
    const GenerateResult result =
        generate(loaded_.ctx, *loaded_.model, cache_, &loaded_.tokenizer, next_,
                 {.max_tokens = tokens, .ignore_eos = true, .sampling = sampling(seed_++)});
    const double ms = seconds_since(start) * 1e3 / static_cast<double>(tokens);
    next_ = {result.ids.back()};
    const std::vector<std::int32_t> tail(result.ids.end() - std::min(kReread, tokens),
                                         result.ids.end());
    return {.tokens = cache_.seen() + 1,
            .ms_per_token = ms,
            .cache_bytes = cache_.bytes(),
            .perplexity = reread_perplexity(loaded_, tail),
            .text = loaded_.tokenizer.decode(tail, true)};
  }

 private:
  Loaded& loaded_;
  KvCache cache_;
  std::vector<std::int32_t> next_;  // tokens that the model has not read yet
  std::uint64_t seed_;
};

// ---- the output ---------------------------------------------------------------------------------

std::string tell_story(Loaded& loaded, const DemoFlags& options) {
  if (!options.json) {
    const ModelConfig& config = loaded.model->config();
    fmt::print("{} model of {} layers, {} of weights, {} threads on {}\n\n", config.architecture,
               config.layers, in_megabytes(loaded.model->weight_bytes()), loaded.ctx.threads(),
               devices()[0].name);
    write_out("Once upon a time");
  }
  KvCache cache = loaded.model->make_cache(loaded.ctx, CachePolicy::full(),
                                           loaded.model->config().max_positions);
  const std::int64_t room =
      loaded.model->config().max_positions - static_cast<std::int64_t>(loaded.prompt.size());
  const GenerateResult result =
      generate(loaded.ctx, *loaded.model, cache, &loaded.tokenizer, loaded.prompt,
               {.max_tokens = std::min(kStory, room), .sampling = sampling(options.seed)},
               [&](const GeneratedToken& token) {
                 if (options.json) return;
                 write_out(token.text);
               });
  if (!options.json) {
    fmt::print("\n\n{} tokens, first {:.0f} ms, then {:.2f} ms each\n\n", result.ids.size(),
               result.first_seconds * 1e3,
               result.decode_seconds * 1e3 / std::max<double>(1, result.ids.size() - 1.0));
  }
  return "Once upon a time" + result.text;
}

constexpr const char* kPolicies[] = {"attention sinks", "plain eviction", "keeps everything"};

void print_policy_header(std::int64_t length) {
  fmt::print(
      "Now an endless stream. The model was trained for {0} tokens; three caches go\n"
      "past that. One keeps the first {1} tokens and the last {2} (attention sinks), one\n"
      "the last {0} (plain eviction), one everything. Each text is then read\n"
      "anew for its perplexity (ppl): the lower, the better the English.\n\n",
      length, kSinks, length - kSinks);
  fmt::print("{:>6}", "");
  for (const char* policy : kPolicies) fmt::print(" | {:^21}", policy);
  fmt::print("\n{:>6}", "tokens");
  for (std::size_t i = 0; i < std::size(kPolicies); ++i) {
    fmt::print(" | {:>6} {:>8} {:>5}", "ms/tok", "KV cache", "ppl");
  }
  fmt::print("\n");
  flush_out();
}

void print_passage(const Passage& passage) {
  write_out(fmt::format(" | {:>6.2f} {:>8} {:>5.1f}", passage.ms_per_token,
                        in_megabytes(passage.cache_bytes), passage.perplexity));
}

void print_end(const std::vector<Passage>& last) {
  for (std::size_t i = 0; i < last.size(); ++i) {
    fmt::print("\nAfter {} tokens, {}:\n  ...{}\n", last[i].tokens, kPolicies[i], last[i].text);
  }
  fmt::print(
      "\nTo go on:\n"
      "  tessera generate \"One day, a dragon\"     a story of your own\n"
      "  tessera generate --attention-sinks 4 --ignore-eos --max-tokens -1 \"One day\"\n"
      "                                           one that ends with Ctrl-C\n"
      "  tessera generate --model DIR --weights int4 \"The sea\"\n"
      "                                           any checkpoint, packed while loading\n"
      "  tessera --help                           all commands\n");
}

nlohmann::json passage_json(const Passage& passage) {
  return {{"tokens", passage.tokens},
          {"ms_per_token", passage.ms_per_token},
          {"cache_bytes", passage.cache_bytes},
          {"perplexity", passage.perplexity},
          {"text", passage.text}};
}

// Says when the stream has to end: after --tokens, or when another row would take too long.
class TimeLimit {
 public:
  explicit TimeLimit(std::int64_t tokens) : limited_(tokens == 0) {}

  bool has_time() {
    const double now = seconds_since(start_);
    slowest_row_ = std::max(slowest_row_, now - last_);
    last_ = now;
    return !limited_ || now + 1.2 * slowest_row_ < kSeconds;
  }
  void start_row() { last_ = seconds_since(start_); }

 private:
  bool limited_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double last_ = 0, slowest_row_ = 0;
};

int run_demo(const DemoFlags& options) {
  if (options.kernels) return run_kernels_demo(options.threads, options.json);
  TimeLimit limit(options.tokens);
  Loaded loaded(options.threads);
  const std::string story = tell_story(loaded, options);

  const std::int64_t length = loaded.model->config().max_positions;
  const std::int64_t total = options.tokens > 0 ? options.tokens : kLengths * length;
  const std::int64_t block = std::max<std::int64_t>(2, length / 2);
  if (!options.json) print_policy_header(length);
  const CachePolicy policies[] = {CachePolicy::sinks(kSinks, length - kSinks),
                                  CachePolicy::last(length), CachePolicy::full()};
  std::vector<Stream> streams;
  for (const CachePolicy& policy : policies) {
    streams.emplace_back(loaded, policy, total + static_cast<std::int64_t>(loaded.prompt.size()),
                         options.seed);
  }
  nlohmann::json rows = nlohmann::json::array();
  std::vector<Passage> last(streams.size());
  limit.start_row();
  for (std::int64_t done = 0; done < total && (done == 0 || limit.has_time()); done += block) {
    nlohmann::json row;
    for (std::size_t i = 0; i < streams.size(); ++i) {
      last[i] = streams[i].write(std::min(block, total - done));
      row[kPolicies[i]] = passage_json(last[i]);
      if (options.json) continue;
      if (i == 0) fmt::print("{:>6}", last[i].tokens);
      print_passage(last[i]);
    }
    if (!options.json) write_out("\n");
    rows.push_back(row);
  }
  if (options.json) {
    fmt::print("{}\n", nlohmann::json{{"story", story}, {"rows", rows}}.dump(2));
  } else {
    print_end(last);
  }
  return 0;
}

}  // namespace

Command add_demo(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "demo", "A story, then an endless stream: attention sinks beside other caches, in 20 s");
  const auto options = std::make_shared<DemoFlags>();
  command->add_option("--threads", options->threads, "CPU threads; 0: all that the process may use")
      ->check(whole_number(0, 1024));
  command->add_option("--tokens", options->tokens, "Length of the stream, however long it takes")
      ->check(whole_number(2));
  command->add_option("--seed", options->seed, "Another seed tells another story")
      ->check(whole_number(0, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
  command->add_flag("--kernels", options->kernels,
                    "Instead: attention, a 4-bit layer and a transformer block, checked against "
                    "float64 and timed");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer(
      "Examples:\n  tessera demo\n  tessera demo --tokens 100000\n"
      "  tessera demo --kernels --json | jq '.rows[].ms'");
  return [options] { return run_demo(*options); };
}

}  // namespace tessera::app
