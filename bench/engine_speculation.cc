#include "engine_speculation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <latch>
#include <utility>

#include "quantile.h"
#include "rounded.h"
#include "tessera/engine.h"
#include "tessera/tokenizer.h"

namespace tessera::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = SpeculationOptions::Kind;

const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"off", "ngram", "draft"};
  return kNames[static_cast<int>(kind)];
}

// Sentences that repeat for ever, continued by the most likely tokens; or a story with drawn
// tokens, a different one for each stream.
Request request_of(const Tokenizer& tokenizer, bool repeats, std::int64_t stream,
                   std::int64_t answer) {
  constexpr std::array<const char*, 8> kNames{"Tom", "Lily", "Ben", "Mia",
                                              "Sam", "Anna", "Max", "Sue"};
  const char* name = kNames[static_cast<std::size_t>(stream) % kNames.size()];
  std::string prompt = fmt::format("Once upon a time, there was a child named {}.", name);
  if (repeats) {
    prompt.clear();
    for (int i = 0; i < 6; ++i) {
      prompt += fmt::format("{} saw a big red ball. {} saw a small blue bird. ", name, name);
    }
  }
  Request request;
  request.prompt_ids = tokenizer.encode(prompt, {.add_special = true});
  request.options = {.max_tokens = answer, .ignore_eos = true};
  request.options.sampling.greedy = repeats;
  request.options.sampling.seed = static_cast<std::uint64_t>(stream);
  return request;
}

using Times = std::vector<Clock::time_point>;  // when each token of a stream came

std::vector<Times> run_streams(Engine& engine, const std::vector<Request>& requests) {
  std::vector<Times> streams(requests.size());
  const auto ended = std::make_shared<std::latch>(std::ssize(requests));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Request request = requests[i];
    request.on_event = [&times = streams[i], ended](const Event& event) {
      if (event.kind == Event::Kind::failed) fmt::print(stderr, "{}\n", event.message);
      if (event.kind != Event::Kind::token) return ended->count_down();
      times.push_back(Clock::now());
    };
    engine.submit(std::move(request));
  }
  ended->wait();
  return streams;
}

// Tokens/s of all streams, from the time when every prompt has been read.
double speed_of(const std::vector<Times>& streams) {
  Clock::time_point begin = Clock::time_point::min(), end = begin;
  for (const Times& times : streams) {
    if (times.empty()) throw Error(ErrorCode::device, "a stream ended without a token");
    begin = std::max(begin, times.front());
    end = std::max(end, times.back());
  }
  std::int64_t tokens = 0;
  for (const Times& times : streams) {
    tokens += std::count_if(times.begin(), times.end(),
                            [begin](Clock::time_point time) { return time > begin; });
  }
  return static_cast<double>(tokens) / std::chrono::duration<double>(end - begin).count();
}

struct Measured {
  Kind kind;
  std::vector<double> speeds{};  // of each round
  EngineStats stats{};           // of the last
};

void run_once(Context& ctx, const Model& model, const std::vector<Request>& requests,
              const SpeculationRuns& runs, Measured& measured) {
  std::int64_t longest = 0;
  for (const Request& request : requests) {
    longest = std::max(longest, std::ssize(request.prompt_ids) + request.options.max_tokens);
  }
  Engine engine(ctx, model, nullptr,
                {.context = longest,
                 .max_sequences = std::ssize(requests),
                 .max_step_tokens = runs.max_step,
                 .cache_dtype = runs.cache_dtype,
                 .prefix_cache = false,
                 .speculation = {.kind = measured.kind, .draft = runs.draft}});
  run_streams(engine, requests);  // to warm up: pages, and what guesses cost
  measured.speeds.push_back(speed_of(run_streams(engine, requests)));
  engine.drain_until(Clock::time_point::max());
  measured.stats = engine.stats();
}

nlohmann::json row_of(const Measured& measured, const Measured& plain) {
  const EngineStats& stats = measured.stats;
  const double passes = static_cast<double>(stats.generated_tokens - stats.accepted_tokens);
  const auto [slowest, fastest] =
      std::minmax_element(measured.speeds.begin(), measured.speeds.end());
  return {{"speculate", name_of(measured.kind)},
          {"stream_speed", rounded(quantile(measured.speeds, 0.5), 1)},
          {"slowest_fastest", {rounded(*slowest, 1), rounded(*fastest, 1)}},
          {"of_off", rounded(quantile(measured.speeds, 0.5) / quantile(plain.speeds, 0.5), 3)},
          {"drafted_tokens", stats.drafted_tokens},
          {"accept_rate", rounded(stats.accept_rate(), 3)},
          {"tokens_per_pass", rounded(static_cast<double>(stats.generated_tokens) / passes, 2)}};
}

}  // namespace

void measure_speculation(Context& ctx, const Model& model, const std::string& folder,
                         const SpeculationRuns& runs,
                         const std::function<void(const nlohmann::json&)>& print) {
  const Tokenizer tokenizer =
      Tokenizer::from_file(std::filesystem::path(folder) / "tokenizer.json");
  std::vector<Kind> kinds{Kind::off};
  if (runs.ngram) kinds.push_back(Kind::ngram);
  if (runs.draft != nullptr) kinds.push_back(Kind::draft);
  for (const bool repeats : {true, false}) {
    for (const std::int64_t streams : runs.streams) {
      std::vector<Request> requests;
      for (std::int64_t i = 0; i < streams; ++i) {
        requests.push_back(request_of(tokenizer, repeats, i, runs.generate));
      }
      std::vector<Measured> measured;
      for (const Kind kind : kinds) measured.push_back({.kind = kind});
      for (int round = 0; round < runs.repeat; ++round) {  // in turns
        for (Measured& of_kind : measured) run_once(ctx, model, requests, runs, of_kind);
      }
      for (const Measured& of_kind : measured) {
        nlohmann::json row = row_of(of_kind, measured.front());
        row["text"] = repeats ? "repeats" : "does not repeat";
        row["streams"] = streams;
        row["answer_tokens"] = runs.generate;
        print(row);
      }
    }
  }
}

}  // namespace tessera::bench
