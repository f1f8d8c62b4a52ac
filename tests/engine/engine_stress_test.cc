// An engine under random load from several threads: forks, policies, priorities, cancellations,
// deadlines, callbacks that throw, passes that fail, guesses, pools of a few pages, and engines
// that are destroyed with work in flight. Whatever happens, each choice ends once, what it got
// before is the beginning of what it gets alone, and nothing is left over.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/brittle_model.h"
#include "support/files.h"
#include "support/sanitizers.h"
#include "tessera/engine.h"

namespace tessera::test {
namespace {

using Ids = std::vector<std::int32_t>;
using std::chrono::milliseconds;

constexpr std::int64_t kStressContext = 64;

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random_()) % (most - least + 1);
  }
  bool percent(std::int64_t chance) { return between(1, 100) <= chance; }

 private:
  std::mt19937 random_;
};

// One of 48 kinds of requests, so that their texts are computed once and prefixes are shared.
Request request_of_kind(std::int64_t kind, std::int64_t vocab) {
  Request request;
  const std::int64_t length = 1 + 7 * (kind % 5);
  for (std::int64_t i = 0; i < length; ++i) {
    request.prompt_ids.push_back(static_cast<std::int32_t>((i * (1 + kind % 3) + 5) % vocab));
  }
  request.options = {.max_tokens = 1 + kind % 23, .ignore_eos = true};
  SamplingOptions& sampling = request.options.sampling;
  sampling.greedy = kind % 2 == 0;
  sampling.temperature = 0.9;
  sampling.seed = static_cast<std::uint64_t>(kind);
  sampling.presence_penalty = kind % 7 == 0 ? 0.4 : 0;
  if (kind % 4 == 1) request.policy = CachePolicy::last(9);
  if (kind % 4 == 2) request.policy = CachePolicy::sinks(2, 8);
  return request;
}

class Stress {
 public:
  Stress(const Model& model, std::uint64_t seed) : seed_(seed), golden_(model), model_(model) {}

  void run() {
    Dice dice(seed_);
    EngineOptions options{.context = kStressContext,
                          .max_sequences = dice.between(1, 6),
                          .max_step_tokens = dice.between(6, 24),
                          .max_waiting = dice.percent(30) ? 3 : 1000,
                          .page_size = dice.between(2, 9),
                          .prefix_cache = dice.percent(70)};
    options.pages = 48 / options.page_size + dice.between(8, 20);
    const bool destroys = dice.percent(40);
    if (dice.percent(40)) model_.fails_every = static_cast<int>(dice.between(9, 40));
    if (dice.percent(60)) {
      options.speculation = {.kind = dice.percent(50) ? SpeculationOptions::Kind::ngram
                                                      : SpeculationOptions::Kind::draft,
                             .max_tokens = dice.between(1, 5),
                             .adaptive = dice.percent(50),
                             .draft = &golden_};
    }
    Context ctx({.threads = 2});
    auto engine = std::make_unique<Engine>(ctx, model_, nullptr, options);
    std::vector<std::thread> clients;
    for (std::uint64_t t = 0; t < 4; ++t) {
      clients.emplace_back([&, t] { submit_some(*engine, 97 * seed_ + t); });
    }
    for (std::thread& client : clients) client.join();
    if (!destroys) {
      EXPECT_TRUE(engine->drain_until(std::chrono::steady_clock::now() + std::chrono::seconds(60)));
      const EngineStats stats = engine->stats();
      EXPECT_EQ(stats.pages_used, 0);
      EXPECT_EQ(stats.running + stats.waiting, 0);
      EXPECT_EQ(stats.finished + stats.failed + stats.cancelled, choices_);
    }
    engine.reset();
    check_all();
  }

 private:
  // What came of a request. With a callback, the engine's thread writes into `seen`.
  struct Outcome {
    std::int64_t kind = 0, n = 0, throws_at = -1;
    bool is_called = false;
    RequestHandle handle{};
    std::vector<Event> seen{};  // so far
    std::atomic<std::int64_t> events = 0;
  };

  void submit_some(Engine& engine, std::uint64_t seed) {
    Dice dice(seed);
    for (int i = 0; i < (kSanitized ? 12 : 25); ++i) {
      const auto outcome = std::make_shared<Outcome>();
      outcome->kind = dice.between(0, 47);
      Request request = request_of_kind(outcome->kind, model_.config().vocab);
      outcome->n = request.n = dice.percent(25) ? dice.between(2, 3) : 1;
      request.priority = static_cast<int>(dice.between(0, 2));
      if (dice.percent(15)) request.deadline = milliseconds(dice.between(0, 6));
      const bool ends = request.policy.kind == CachePolicy::Kind::full;
      if (ends && dice.percent(20)) request.options.max_tokens = -1;
      if (dice.percent(40)) {
        outcome->is_called = true;
        outcome->throws_at = dice.percent(30) ? dice.between(0, 9) : -1;
        request.on_event = [raw = outcome.get()](const Event& event) {
          raw->seen.push_back(event);
          if (raw->events++ == raw->throws_at) throw std::runtime_error("no");
        };
      }
      if (dice.percent(5)) request.prompt_ids.clear();  // is refused
      try {
        outcome->handle = engine.submit(request);
      } catch (const Error&) {
        continue;
      }
      if (dice.percent(10)) outcome->handle.cancel();
      if (dice.percent(10) && !request.on_event) {
        const auto soon = std::chrono::steady_clock::now() + milliseconds(2);
        if (const auto event = outcome->handle.next_until(soon)) outcome->seen.push_back(*event);
      }
      const std::lock_guard lock(mutex_);
      choices_ += request.n;
      outcomes_.push_back(outcome);
      if (dice.percent(10)) {
        outcomes_[static_cast<std::size_t>(dice.between(0, std::ssize(outcomes_) - 1))]
            ->handle.cancel();
      }
    }
  }

  void check_all() {
    for (const auto& outcome : outcomes_) {
      std::vector<Event>& events = outcome->seen;
      while (!outcome->is_called) {
        const auto event = outcome->handle.next();
        if (!event) break;
        events.push_back(*event);
      }
      EXPECT_TRUE(outcome->handle.is_done());
      for (std::int64_t choice = 0; choice < outcome->n; ++choice) check(*outcome, events, choice);
    }
  }

  void check(const Outcome& outcome, const std::vector<Event>& events, std::int64_t choice) {
    SCOPED_TRACE("kind " + std::to_string(outcome.kind) + ", choice " + std::to_string(choice));
    Ids ids;
    int ends = 0;
    for (const Event& event : events) {
      if (event.choice != choice) continue;
      EXPECT_EQ(ends, 0) << "an event after the end";
      if (event.kind != Event::Kind::token) {
        ++ends;
      } else {
        ids.push_back(event.token.sampled.token.id);
      }
    }
    EXPECT_EQ(ends, 1);
    const Ids& whole = alone(outcome.kind, choice);
    ASSERT_LE(ids.size(), whole.size());
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), whole.begin()));
  }

  // All that the request could get, however long.
  const Ids& alone(std::int64_t kind, std::int64_t choice) {
    static std::map<std::pair<std::int64_t, std::int64_t>, Ids> texts;
    Ids& ids = texts[{kind, choice}];
    if (!ids.empty()) return ids;
    Request request = request_of_kind(kind, golden_.config().vocab);
    request.options.max_tokens = 200;
    request.options.sampling.seed += static_cast<std::uint64_t>(choice);
    Context ctx({.threads = 1});
    KvCache cache = golden_.make_cache(ctx, request.policy, kStressContext, 16);
    ids = generate(ctx, golden_, cache, nullptr, request.prompt_ids, request.options).ids;
    return ids;
  }

  std::uint64_t seed_;
  const Model& golden_;
  Brittle model_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Outcome>> outcomes_;
  std::int64_t choices_ = 0;
};

TEST(EngineStress, EveryChoiceEndsOnceWithItsOwnTokens) {
  Context ctx({.threads = 1});
  const auto model =
      load_model(ctx, data_path("goldens") / "neox-serial-untied", {.dtype = DType::f32});
  const std::uint64_t seeds = kSanitized ? 6 : 20;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Stress(*model, seed).run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace tessera::test
