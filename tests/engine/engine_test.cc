// Requests through the engine: the same tokens as alone, in any company; refusals, failures and
// cancellations that touch nobody else.
#include "tessera/engine.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/brittle_model.h"
#include "support/devices.h"
#include "support/files.h"
#include "support/logprobs.h"
#include "support/tokenizer_files.h"

namespace tessera::test {
namespace {

using Ids = std::vector<std::int32_t>;
using std::chrono::milliseconds;

constexpr std::int64_t kContext = 96;

Ids random_ids(std::mt19937& random, std::int64_t vocab, std::int64_t count) {
  Ids ids(static_cast<std::size_t>(count));
  for (std::int32_t& id : ids)
    id = static_cast<std::int32_t>(static_cast<std::int64_t>(random()) % vocab);
  return ids;
}

Request request_of(Ids prompt, std::int64_t max_tokens, const SamplingOptions& sampling = {}) {
  Request request;
  request.prompt_ids = std::move(prompt);
  request.options = {.max_tokens = max_tokens, .ignore_eos = true, .sampling = sampling};
  return request;
}

// What generate() makes of choice i of a request.
GenerateResult alone(Context& ctx, const Model& model, const Request& request,
                     std::int64_t choice = 0) {
  KvCache cache = model.make_cache(ctx, request.policy, kContext, 32);
  GenerateOptions options = request.options;
  options.sampling.seed += static_cast<std::uint64_t>(choice);
  return generate(ctx, model, cache, nullptr, request.prompt_ids, options);
}

// The message that fn() is refused with.
template <typename F>
std::string refusal_of(F&& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what();
  }
  return "was not refused";
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

class EngineTest : public DeviceTest {
 protected:
  // With a trace, a GPU runs no step ahead and records none.
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped()) ctx().trace().enable(false);
  }
  std::unique_ptr<Model> load(const char* golden) {
    return load_model(ctx(), data_path("goldens") / golden, {.dtype = DType::f32});
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, EngineTest, testing::ValuesIn(test_devices()), device_name);

// A small pool makes requests wait and preempts some; chunks cut prompts anywhere.
TEST_P(EngineTest, GivesTheSameTokensInAnyCompany) {
  const bool small = kSlowdown > 1 || !ctx().device().is_cpu();
  for (const char* name : {"neox-serial-untied", "qwen3"}) {
    const auto model = load(name);
    std::mt19937 random(7);
    const SamplingOptions samplings[] = {
        {.greedy = true},
        {.temperature = 0.8, .top_k = 20, .top_p = 0.95, .seed = 5},
        {.temperature = 0.9, .repetition_penalty = 1.3, .presence_penalty = 0.4, .seed = 9},
        {.greedy = true, .frequency_penalty = 0.7, .logit_bias = {{3, 2.f}, {5, -1.f}}}};
    const CachePolicy policies[] = {CachePolicy::full(), CachePolicy::full(), CachePolicy::last(24),
                                    CachePolicy::sinks(3, 20)};
    const auto pick = [&](std::int64_t least, std::int64_t most) {
      return least + static_cast<std::int64_t>(random()) % (most - least + 1);
    };
    std::vector<Request> requests;
    const Ids shared = random_ids(random, model->config().vocab, 40);
    for (int i = 0; i < (small ? 40 : 500); ++i) {
      Ids prompt = random_ids(random, model->config().vocab, pick(1, 40));
      if (i % 3 == 0) prompt.insert(prompt.begin(), shared.begin(), shared.end());
      Request request = request_of(std::move(prompt), pick(1, 30), samplings[random() % 4]);
      request.policy = policies[random() % 4];
      request.n = i % 7 == 0 ? 3 : 1;
      request.priority = static_cast<int>(random() % 3);
      requests.push_back(request);
    }
    std::vector<std::vector<Ids>> expected;
    for (const Request& request : requests) {
      expected.emplace_back();
      for (std::int64_t c = 0; c < request.n; ++c) {
        expected.back().push_back(alone(ctx(), *model, request, c).ids);
      }
    }
    Engine engine(ctx(), *model, nullptr,
                  {.context = kContext,
                   .max_sequences = 12,
                   .max_step_tokens = 48,
                   .pages = 24,
                   .page_size = 8});
    std::vector<RequestHandle> handles(requests.size());
    std::vector<std::thread> clients;
    for (std::size_t t = 0; t < 4; ++t) {
      clients.emplace_back([&, t] {
        for (std::size_t i = t; i < requests.size(); i += 4) {
          handles[i] = engine.submit(requests[i]);
        }
      });
    }
    for (std::thread& client : clients) client.join();
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const std::vector<GenerateResult> results = handles[i].wait();
      ASSERT_EQ(results.size(), expected[i].size());
      for (std::size_t c = 0; c < results.size(); ++c) {
        EXPECT_EQ(results[c].ids, expected[i][c]) << name << ", request " << i << ", choice " << c;
      }
    }
    const EngineStats stats = engine.stats();
    if (!small) {
      EXPECT_GT(stats.preemptions, 0);  // with fewer requests it depends on who comes first
    }
    EXPECT_GT(stats.cached_tokens, 0);
    EXPECT_EQ(stats.failed, 0);
  }
}

// Each way in which other requests change where a prompt is cut, or what is read again. Log-
// probabilities differ by rounding then.
TEST_P(EngineTest, LogitsSurviveCutsPrefixesForksAndPreemption) {
  constexpr float kTolerance = 1e-4F;
  for (const char* name : {"neox-serial-untied", "qwen3"}) {
    SCOPED_TRACE(name);
    const auto model = load(name);
    std::mt19937 random(13);
    Request request = request_of(random_ids(random, model->config().vocab, 45), 24,
                                 {.temperature = 0.9, .seed = 4});
    request.options.top_logprobs = 5;
    std::vector<GenerateResult> expected;
    for (std::int64_t c = 0; c < 3; ++c) expected.push_back(alone(ctx(), *model, request, c));
    const auto check = [&](RequestHandle handle) {
      const std::vector<GenerateResult> found = handle.wait();
      for (std::size_t c = 0; c < found.size(); ++c) {
        expect_near(found[c].sampled, expected[c].sampled, kTolerance);
      }
    };
    for (const std::int64_t cut : {1, 7, 16, 17, 31}) {
      SCOPED_TRACE(cut);
      Engine engine(
          ctx(), *model, nullptr,
          {.context = kContext, .max_sequences = 1, .max_step_tokens = cut, .page_size = 8});
      check(engine.submit(request));
      EXPECT_EQ(engine.stats().cached_tokens, 0);
      check(engine.submit(request));
      EXPECT_GT(engine.stats().cached_tokens, 0);
    }
    Request forked = request;
    forked.n = 3;
    for (const bool prefix_cache : {true, false}) {
      // Room for one of them, and for a part of another.
      Engine engine(ctx(), *model, nullptr,
                    {.context = kContext,
                     .max_sequences = 4,
                     .pages = 11,
                     .page_size = 8,
                     .prefix_cache = prefix_cache});
      RequestHandle single = engine.submit(request);
      check(engine.submit(forked));
      check(single);
      EXPECT_GT(engine.stats().preemptions, 0);
    }
  }
}

TEST_P(EngineTest, ABadRequestIsRefusedAlone) {
  const auto model = load("neox-serial-untied");
  Engine engine(ctx(), *model, nullptr, {.context = kContext, .max_sequences = 4});
  RequestHandle good = engine.submit(request_of({1, 2, 3}, 20));
  const auto refused = [&](const char* why, Request request) {
    const std::string text = refusal_of([&] { engine.submit(std::move(request)); });
    EXPECT_TRUE(contains(text, why)) << text;
  };
  refused("the prompt is empty", request_of({}, 5));
  refused("max_tokens is 0", request_of({1}, 0));
  refused("token 1 of the prompt is 1000000", request_of({1, 1000000}, 5));
  refused("temperature is -1", request_of({1}, 5, {.temperature = -1}));
  refused("a sequence here holds at most 96", request_of(Ids(97, 1), 5));
  Request many = request_of({1}, 5);
  many.n = 5;
  refused("n is 5; it must be from 1 to 4", many);
  Request text = request_of({}, 5);
  text.prompt = "hello";
  refused("the engine has no tokenizer", text);
  EXPECT_EQ(good.wait()[0].ids.size(), 20u);
}

TEST_P(EngineTest, RefusesOptionsThatMakeNoSense) {
  const auto model = load("neox-serial-untied");
  const auto refused = [&](const char* why, const EngineOptions& options) {
    EXPECT_EQ(refusal_of([&] { const Engine engine(ctx(), *model, nullptr, options); }), why);
  };
  refused("context is -1; it must be 0 (as trained) or more", {.context = -1});
  refused("max_sequences is 0; it must be 1 or more", {.max_sequences = 0});
  refused("max_step_tokens is 0; it must be 1 or more", {.max_step_tokens = 0});
  refused("max_waiting is -1; it must be 0 or more", {.max_waiting = -1});
  refused("pages is -1; it must be 0 (as many as fit) or more", {.pages = -1});
  refused("page_size is 0; it must be 1 or more", {.page_size = 0});
}

TEST_P(EngineTest, TheAnswerEndsWhereTheContextDoes) {
  const auto model = load("neox-serial-untied");
  Engine engine(ctx(), *model, nullptr, {.context = kContext});
  Request request = request_of(Ids(90, 1), -1);
  const GenerateResult result = engine.submit(request).wait()[0];
  EXPECT_EQ(result.reason, StopReason::context_full);
  EXPECT_EQ(result.ids.size(), 7u);  // 90 + 6 are stored; the last one need not be
  EXPECT_EQ(result.ids, alone(ctx(), *model, request).ids);
}

TEST_P(EngineTest, SinksAndWindowMayFillTheContext) {
  const auto model = load("neox-serial-untied");
  Engine engine(ctx(), *model, nullptr, {.context = kContext});
  Request request = request_of(Ids(90, 1), kContext);
  for (const std::int64_t sinks : {std::int64_t{1}, std::int64_t{4}, kContext / 2}) {
    request.policy = CachePolicy::sinks(sinks, kContext - sinks);
    EXPECT_EQ(engine.submit(request).wait()[0].ids.size(), static_cast<std::size_t>(kContext));
  }
}

TEST_P(EngineTest, APromptIsReadAgainIfItsRequestSaysSo) {
  const auto model = load("neox-serial-untied");
  Engine engine(ctx(), *model, nullptr, {.context = kContext});
  Request request = request_of(Ids(90, 1), 2);
  const auto cached = [&] {
    engine.submit(request).wait();
    return engine.stats().cached_tokens;
  };
  EXPECT_EQ(cached(), 0);
  request.use_prefix_cache = false;
  EXPECT_EQ(cached(), 0);
  request.use_prefix_cache = true;
  EXPECT_GT(cached(), 0);
}

TEST_P(EngineTest, CancelledAndLateRequestsEndAndGiveTheirPagesBack) {
  const auto model = load("neox-serial-untied");
  Engine engine(ctx(), *model, nullptr, {.context = kContext, .prefix_cache = false});
  Request endless = request_of({1, 2, 3}, -1);
  endless.policy = CachePolicy::sinks(2, 10);
  RequestHandle cancelled = engine.submit(endless);
  endless.deadline = milliseconds(30);
  RequestHandle late = engine.submit(endless);
  EXPECT_EQ(late.wait()[0].reason, StopReason::deadline);
  EXPECT_FALSE(cancelled.is_done());
  cancelled.cancel();
  EXPECT_EQ(cancelled.wait()[0].reason, StopReason::cancelled);
  EXPECT_TRUE(engine.drain_until(std::chrono::steady_clock::now() + std::chrono::seconds(10)));
  EXPECT_EQ(engine.stats().pages_used, 0);
  EXPECT_EQ(refusal_of([&] { engine.submit(request_of({1}, 1)); }),
            "the engine is ending and takes no more requests");
}

TEST_P(EngineTest, ADeadlineHoldsInTheQueueToo) {
  const auto model = load("neox-serial-untied");
  Engine engine(ctx(), *model, nullptr, {.context = kContext, .max_sequences = 1});
  Request endless = request_of({1, 2, 3}, -1);
  endless.policy = CachePolicy::sinks(2, 10);
  RequestHandle running = engine.submit(endless);
  ASSERT_TRUE(running.next());  // it has the only place
  Request late = request_of({4, 5}, 5);
  late.deadline = milliseconds(20);
  const GenerateResult result = engine.submit(late).wait()[0];
  EXPECT_EQ(result.reason, StopReason::deadline);
  EXPECT_TRUE(result.ids.empty());
  EXPECT_FALSE(running.is_done());
  running.cancel();
  EXPECT_EQ(running.wait()[0].reason, StopReason::cancelled);
}

TEST_P(EngineTest, EventsComeInOrderThroughACallback) {
  const auto model = load("neox-serial-untied");
  Request request = request_of({4, 5, 6}, 9);
  const Ids expected = alone(ctx(), *model, request).ids;
  Engine engine(ctx(), *model, nullptr, {.context = kContext});
  Ids ids;
  std::atomic<int> ends = 0;
  request.on_event = [&](const Event& event) {
    if (event.kind == Event::Kind::token) ids.push_back(event.token.sampled.token.id);
    if (event.kind == Event::Kind::finished) {
      EXPECT_EQ(event.usage.generated_tokens, 9);
      EXPECT_EQ(event.usage.prompt_tokens, 3);
      ++ends;
    }
  };
  engine.submit(request);
  engine.drain_until(std::chrono::steady_clock::now() + std::chrono::seconds(20));
  EXPECT_EQ(ends, 1);
  EXPECT_EQ(ids, expected);
}

TEST_P(EngineTest, ACallbackThatThrowsEndsItsRequestAlone) {
  const auto model = load("neox-serial-untied");
  Engine engine(ctx(), *model, nullptr, {.context = kContext});
  Request bad = request_of({4, 5, 6}, 50);
  std::atomic<int> calls = 0;
  bad.on_event = [&](const Event& event) {
    ++calls;
    if (event.kind == Event::Kind::token) throw std::runtime_error("no");
  };
  engine.submit(bad);
  EXPECT_EQ(engine.submit(request_of({7}, 30)).wait()[0].ids.size(), 30u);
  engine.drain_until(std::chrono::steady_clock::now() + std::chrono::seconds(20));
  EXPECT_LE(calls, 4);
  EXPECT_EQ(engine.stats().cancelled, 1);
}

TEST_P(EngineTest, AFailingStepEndsItsRequestsAndTheEngineGoesOn) {
  const auto golden = load("neox-serial-untied");
  const Brittle model(*golden);
  Engine engine(ctx(), model, nullptr, {.context = kContext, .prefix_cache = false});
  model.fails_next = true;
  EXPECT_EQ(refusal_of([&] { engine.submit(request_of({1, 2}, 5)).wait(); }), "the pass failed");
  model.throws_a_number = true;
  EXPECT_EQ(refusal_of([&] {
              engine.submit(request_of({1, 2}, 5)).wait();
            }),
            "a step has thrown something that is no std::exception");
  model.throws_a_number = false;
  const Request request = request_of({1, 2}, 5);
  const Ids ids = engine.submit(request).wait()[0].ids;
  EXPECT_TRUE(engine.drain_until(std::chrono::steady_clock::now() + std::chrono::seconds(10)));
  EXPECT_EQ(engine.stats().pages_used, 0);
  EXPECT_EQ(ids, alone(ctx(), *golden, request).ids);
}

// The step of one request fails, while another one waits for its place.
TEST_P(EngineTest, AFailingStepLeavesTheQueueAlone) {
  ctx().trace().enable();  // otherwise a GPU may have recorded the step, and not ask the model
  const auto golden = load("neox-serial-untied");
  const Brittle model(*golden);
  const Request waiting = request_of({3, 4, 5}, 20);
  const Ids expected = alone(ctx(), *golden, waiting).ids;
  Engine engine(ctx(), model, nullptr, {.context = kContext, .max_sequences = 1});
  // The engine stands still at the first token, until the other request is in the queue.
  std::promise<void> other_waits;
  Request failing = request_of({1, 2}, 30);
  std::string reason;
  failing.on_event = [&, wait = other_waits.get_future().share()](const Event& event) {
    wait.wait();
    if (event.kind == Event::Kind::failed) reason = event.message;
  };
  engine.submit(failing);
  RequestHandle other = engine.submit(waiting);
  model.fails_next = true;
  other_waits.set_value();
  EXPECT_EQ(other.wait()[0].ids, expected);
  EXPECT_EQ(reason, "the pass failed");
  EXPECT_TRUE(engine.drain_until(std::chrono::steady_clock::now() + std::chrono::seconds(10)));
  EXPECT_EQ(engine.stats().failed, 1);
  EXPECT_EQ(engine.stats().finished, 1);
}

TEST_P(EngineTest, AFullQueueIsBusy) {
  const auto model = load("neox-serial-untied");
  Engine engine(ctx(), *model, nullptr,
                {.context = kContext, .max_sequences = 1, .max_waiting = 2});
  Request endless = request_of({1}, -1);
  endless.policy = CachePolicy::sinks(2, 10);
  std::vector<RequestHandle> handles;
  try {
    for (int i = 0; i < 10; ++i) handles.push_back(engine.submit(endless));
    FAIL() << "ten requests were taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::busy);
  }
  EXPECT_GE(handles.size(), 2u);
}

TEST_P(EngineTest, APromptThatWasReadBeforeIsFoundAgain) {
  const auto model = load("qwen3");
  std::mt19937 random(3);
  const Request request = request_of(random_ids(random, model->config().vocab, 70), 8);
  Engine engine(ctx(), *model, nullptr, {.context = kContext, .page_size = 16});
  const Ids first = engine.submit(request).wait()[0].ids;
  RequestHandle again = engine.submit(request);
  std::int64_t cached = -1;
  Ids second;
  while (const auto event = again.next()) {
    if (event->kind == Event::Kind::finished) cached = event->usage.cached_tokens;
    if (event->kind == Event::Kind::token) second.push_back(event->token.sampled.token.id);
  }
  EXPECT_EQ(cached, 64);
  EXPECT_EQ(second, first);
  EXPECT_DOUBLE_EQ(engine.stats().prefix_hit_rate(), 64.0 / 140);
}

// Threads of this process want a stack that its limit of addresses does not have.
[[noreturn, maybe_unused]] void start_engine_without_room_for_a_thread() {
  Context ctx({.threads = 1});
  const auto model = load_model(ctx, data_path("goldens") / "neox-serial-untied");
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, std::size_t{1} << 40);
  pthread_setattr_default_np(&attributes);
  const rlimit limit{.rlim_cur = rlim_t{1} << 39, .rlim_max = rlim_t{1} << 39};
  setrlimit(RLIMIT_AS, &limit);
  try {
    const Engine engine(ctx, *model, nullptr, {.context = kContext});
    std::fputs("the engine started", stderr);
  } catch (const Error& error) {
    std::fputs(error.what(), stderr);
    std::_Exit(error.code() == ErrorCode::device ? 1 : 2);
  }
  std::_Exit(0);
}

TEST(Engine, AThreadThatCannotStartIsASentence) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers need more address space than the test allows";
#else
  EXPECT_EXIT(start_engine_without_room_for_a_thread(), testing::ExitedWithCode(1),
              "^the engine's thread could not start \\(Resource temporarily unavailable\\); end "
              "other threads first$");
#endif
}

}  // namespace
}  // namespace tessera::test
