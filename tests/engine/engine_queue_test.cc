// Requests that wait for an engine: how many may, who is looked at while many do, and how they are
// counted when they end.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <semaphore>
#include <vector>

#include "support/brittle_model.h"
#include "support/devices.h"
#include "support/files.h"
#include "tessera/engine.h"

namespace tessera::test {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

Request stream_of(std::int64_t max_tokens) {
  Request request;
  request.prompt_ids = {1, 2, 3};
  request.options = {.max_tokens = max_tokens, .ignore_eos = true};
  request.policy = CachePolicy::sinks(2, 10);
  return request;
}

bool is_busy(Engine& engine, const Request& request) {
  try {
    engine.submit(request);
    return false;
  } catch (const Error& error) {
    return error.code() == ErrorCode::busy;
  }
}

class EngineQueueTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped()) model_ = load_model(ctx(), data_path("goldens") / "neox-serial-untied");
  }
  static void expect_drained(Engine& engine) {
    EXPECT_TRUE(engine.drain_until(Clock::now() + std::chrono::seconds(20)));
  }
  std::unique_ptr<Model> model_;
};
INSTANTIATE_TEST_SUITE_P(Devices, EngineQueueTest, testing::ValuesIn(test_devices()), device_name);

// Those that the engine took from its inbox before a step count in that step too.
TEST_P(EngineQueueTest, NoMoreWaitThanTheQueueHolds) {
  Engine engine(ctx(), *model_, nullptr, {.max_sequences = 1, .max_waiting = 2});
  // One stream runs. Each of its tokens keeps the engine in its step.
  struct Gate {
    std::counting_semaphore<> in_step{0}, go_on{0};
  };
  const auto gate = std::make_shared<Gate>();
  Request running = stream_of(3);
  running.on_event = [gate](const Event& event) {
    if (event.kind != Event::Kind::token) return;
    gate->in_step.release();
    gate->go_on.acquire();
  };
  engine.submit(running);
  gate->in_step.acquire();
  EXPECT_FALSE(is_busy(engine, stream_of(1)));
  EXPECT_FALSE(is_busy(engine, stream_of(1)));
  EXPECT_TRUE(is_busy(engine, stream_of(1)));
  gate->go_on.release();
  gate->in_step.acquire();  // the next step, which has taken both from the inbox
  EXPECT_TRUE(is_busy(engine, stream_of(1)));
  gate->go_on.release(2);
  expect_drained(engine);
  EXPECT_EQ(engine.stats().finished, 3);
}

// Four streams end at tokens of their own choice, while 400 requests wait.
TEST_P(EngineQueueTest, AStreamEndsAtOnceBesideALongQueue) {
  constexpr int kStreams = 4;
  Engine engine(ctx(), *model_, nullptr, {.max_sequences = kStreams});
  std::atomic<int> tokens[kStreams] = {};
  std::promise<void> queue_is_long;
  const std::shared_future<void> is_long = queue_is_long.get_future().share();
  std::vector<RequestHandle> handles;
  for (int i = 0; i < kStreams; ++i) {
    Request request = stream_of(-1);
    request.on_event = [&tokens, i, is_long](const Event& event) {
      is_long.wait();
      if (event.kind == Event::Kind::token && ++tokens[i] == 3 + i) throw i;  // cancels it
    };
    handles.push_back(engine.submit(request));
  }
  for (int i = 0; i < 400; ++i) engine.submit(stream_of(1));
  queue_is_long.set_value();
  expect_drained(engine);
  for (int i = 0; i < kStreams; ++i) EXPECT_EQ(tokens[i], 3 + i) << "stream " << i;
}

TEST_P(EngineQueueTest, ChoicesThatNeverBeganAreCountedAsTheyEnd) {
  const Brittle model(*model_);
  Engine engine(ctx(), model, nullptr, {.max_sequences = 3});
  Request several = stream_of(5);
  several.n = 3;
  model.fails_next = true;
  EXPECT_THROW(engine.submit(several).wait(), Error);
  RequestHandle running = engine.submit(stream_of(-1));
  ASSERT_TRUE(running.next());  // two places are left, and three are needed
  RequestHandle waiting = engine.submit(several);
  waiting.cancel();
  for (const GenerateResult& result : waiting.wait()) {
    EXPECT_EQ(result.reason, StopReason::cancelled);
  }
  several.deadline = milliseconds(1);
  engine.submit(several).wait();
  running.cancel();
  expect_drained(engine);
  EXPECT_EQ(engine.stats().failed, 3);
  EXPECT_EQ(engine.stats().cancelled, 4);
  EXPECT_EQ(engine.stats().finished, 3);
}

TEST_P(EngineQueueTest, ADeadlineBeyondTheClockNeverComes) {
  Engine engine(ctx(), *model_, nullptr, {});
  Request request = stream_of(4);
  for (const milliseconds deadline : {milliseconds::max(), milliseconds::max() / 1000000}) {
    request.deadline = deadline;
    EXPECT_EQ(engine.submit(request).wait()[0].reason, StopReason::max_tokens);
  }
  EXPECT_TRUE(engine.drain_until(Clock::time_point::max()));
}

}  // namespace
}  // namespace tessera::test
