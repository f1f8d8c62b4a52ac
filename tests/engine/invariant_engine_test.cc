// EngineOptions::batch_invariant: a request gets the same bits alone and in random company, through
// the whole engine.
//
//   wave     | prompts, read in one step, each as one chunk |  their streams
//   extras                                                  | prompts of one token, now and then
//
// Where a prompt is cut into chunks decides its last bits, on a GPU and on the CPU. So prompts come
// while no stream runs, and share a whole step. A prompt of one token is never cut, and counts as a
// stream.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "support/devices.h"
#include "support/files.h"
#include "support/logprobs.h"
#include "support/sanitizers.h"
#include "tessera/engine.h"

namespace tessera::test {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::int64_t kMostStreams = 24, kLongPrompt = 530;

class InvariantEngineTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped()) ctx().trace().enable(false);  // with a trace, no step is launched ahead
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, InvariantEngineTest, testing::ValuesIn(test_devices()),
                         device_name);

class RequestMaker {
 public:
  explicit RequestMaker(std::int64_t vocab) : vocab_(vocab) {}

  std::int64_t pick(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random_()) % (most - least + 1);
  }

  // Half of the waves ask for log-probabilities. A GPU runs the others a step ahead.
  Request make(std::int64_t prompt_tokens, std::int64_t most_tokens, bool logprobs) {
    Request request;
    for (std::int64_t i = 0; i < prompt_tokens; ++i) {
      request.prompt_ids.push_back(static_cast<std::int32_t>(pick(0, vocab_ - 1)));
    }
    request.options = {.max_tokens = pick(1, most_tokens), .ignore_eos = true};
    request.options.top_logprobs = logprobs ? 3 : -1;
    SamplingOptions& sampling = request.options.sampling;
    sampling.greedy = pick(0, 2) == 0;
    sampling.temperature = 0.9;
    sampling.seed = static_cast<std::uint64_t>(pick(0, 1000));
    if (pick(0, 7) == 0) sampling.presence_penalty = 0.5;
    const std::int64_t kind = pick(0, 5);
    if (kind == 0) request.policy = CachePolicy::last(48);
    if (kind == 1) request.policy = CachePolicy::sinks(2, 46);
    return request;
  }

 private:
  std::int64_t vocab_;
  std::mt19937 random_{17};
};

struct Wave {
  std::vector<Request> together, extras;
};

// The first `longest` waves have a sequence of more than 512 keys.
std::vector<Wave> make_waves(std::int64_t vocab, std::size_t count, std::size_t longest) {
  RequestMaker requests(vocab);
  std::vector<Wave> waves(count);
  for (std::size_t w = 0; w < waves.size(); ++w) {
    const bool logprobs = w % 2 == 0;
    // The places of a wave are for it, its extras and the stream that brings these.
    const std::int64_t extras = requests.pick(0, kMostStreams / 2);
    for (std::int64_t i = requests.pick(1, kMostStreams - 1 - extras); i > 0; --i) {
      waves[w].together.push_back(requests.make(requests.pick(2, 40), 30, logprobs));
    }
    for (std::int64_t i = extras; i > 0; --i) {
      waves[w].extras.push_back(requests.make(1, 30, logprobs));
    }
    if (w >= longest) continue;
    Request request = requests.make(kLongPrompt, 30, logprobs);
    request.options.max_tokens = 30;
    request.policy = CachePolicy::full();
    waves[w].together.back() = request;
  }
  return waves;
}

// Runs the wave, and one more stream: each of its tokens submits an extra.
std::vector<GenerateResult> run_wave(Engine& engine, const Wave& wave) {
  struct State {
    std::promise<void> submitted, ended;
    std::vector<RequestHandle> handles;
    std::size_t extras = 0;
  };
  const auto state = std::make_shared<State>();  // the engine may still be in set_value()
  Request stream;
  stream.prompt_ids = {5, 6};
  stream.options = {.max_tokens = 1 + std::ssize(wave.extras), .ignore_eos = true};
  stream.on_event = [state, &engine, &wave](const Event& event) {
    if (event.kind != Event::Kind::token) return state->ended.set_value();
    if (state->extras == wave.extras.size()) return;
    state->handles.push_back(engine.submit(wave.extras[state->extras++]));
  };
  // Nothing runs when this one ends, and the next step begins with all that it submits.
  Request gate;
  gate.prompt_ids = {0};
  gate.options = {.max_tokens = 1, .ignore_eos = true};
  gate.on_event = [state, &engine, &wave, &stream](const Event& event) {
    if (event.kind == Event::Kind::token) return;
    for (const Request& request : wave.together) state->handles.push_back(engine.submit(request));
    engine.submit(stream);
    state->submitted.set_value();
  };
  engine.submit(gate);
  state->submitted.get_future().wait();
  state->ended.get_future().wait();
  std::vector<GenerateResult> results;
  for (RequestHandle& handle : state->handles) results.push_back(handle.wait()[0]);
  return results;
}

TEST_P(InvariantEngineTest, ARequestGetsTheSameBitsAloneAndInCompany) {
  const bool emulated = is_emulated(GetParam());  // slow: one wave, and no long prompt
  const std::size_t waves = emulated ? 1 : kSanitized ? 3 : 20, longest = emulated ? 0 : 2;
  for (const char* golden : {"neox-parallel", "llama-gqa"}) {
    SCOPED_TRACE(golden);
    const auto model = load_model(ctx(), data_path("goldens") / golden, {.dtype = DType::f16});
    Engine engine(ctx(), *model, nullptr,
                  {.context = 640,
                   .max_sequences = kMostStreams,
                   .max_step_tokens = 2048,
                   .page_size = 16,
                   .prefix_cache = false,
                   .batch_invariant = true});
    std::int64_t count = 0;
    for (const Wave& wave : make_waves(model->config().vocab, waves, longest)) {
      const std::vector<GenerateResult> together = run_wave(engine, wave);
      std::vector<Request> requests = wave.together;
      requests.insert(requests.end(), wave.extras.begin(), wave.extras.end());
      ASSERT_EQ(together.size(), requests.size());
      for (std::size_t i = 0; i < requests.size(); ++i, ++count) {
        const GenerateResult alone = engine.submit(requests[i]).wait()[0];
        EXPECT_EQ(together[i].ids, alone.ids) << "request " << count;
        expect_same(together[i].sampled, alone.sampled);
      }
    }
    EXPECT_EQ(engine.stats().preemptions, 0);
    if (waves == 20) {
      EXPECT_GT(count, 250);
    }
  }
}

}  // namespace
}  // namespace tessera::test
