// Draws on the device of the logits against the Sampler on the host: the same tokens, whatever the
// options and the company.
#include "engine/device_draws.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "reference/test_tensor.h"
#include "support/allocations.h"
#include "support/devices.h"
#include "tessera/sampling.h"

namespace tessera::test {
namespace {

constexpr std::int64_t kVocab = 2311;  // more than a part of a GPU's kernels

// One stream, drawn from on the device and, by a second Sampler, on the host.
struct TwinStream {
  TwinStream(const SamplingOptions& options, std::int64_t top_logprobs)
      : device(options), host(options), top(top_logprobs) {
    const std::vector<std::int32_t> prompt = {5, 1200, 5, 17, 2310};
    device.see_prompt(prompt);
    host.see_prompt(prompt);
  }
  Sampler device, host;
  std::int64_t top;
  std::vector<std::int32_t> drafts{};
  std::vector<Sampled> drawn{};
};

std::vector<SamplingOptions> stream_options() {
  const float forbidden = -std::numeric_limits<float>::infinity();
  return {
      {.seed = 3},
      {.greedy = true},
      {.temperature = 0.7, .top_k = 40, .top_p = 0.9, .seed = 4},
      {.min_p = 0.05, .seed = 5},
      {.repetition_penalty = 1.3, .seed = 6},
      {.greedy = true, .presence_penalty = 3.0, .frequency_penalty = 0.5},
      {.top_p = 0.95, .logit_bias = {{7, 4.f}, {8, forbidden}, {7, 9.5f}}, .seed = 7},
      {.greedy = true, .repetition_penalty = 0.8, .logit_bias = {{17, 1.5f}, {2310, 6.f}}},
      {.temperature = 1.4, .top_k = 5, .repetition_penalty = 1.1, .frequency_penalty = -0.3},
  };
}

// Steps of all streams at once, over random logits.
class DrawnSteps {
 public:
  DrawnSteps(Context& ctx, std::vector<std::unique_ptr<TwinStream>> streams, std::int64_t rows)
      : ctx_(ctx), streams_(std::move(streams)), draws_on_device_(ctx, kVocab, rows) {}

  // `drafts` rows follow the first one of each stream; every other draft is right.
  void step(std::uint64_t seed, std::size_t drafts, bool shared_rows = false) {
    const std::int64_t each = 1 + static_cast<std::int64_t>(drafts);
    const std::int64_t rows = shared_rows ? each : std::ssize(streams_) * each;
    const Array values = random_normal({rows, kVocab}, seed, 2.5);
    const TestTensor logits(ctx_, values, DType::f32);
    const Array rounded = logits.read();
    std::vector<Draw> draws;
    std::vector<std::vector<Sampled>> expected;
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      TwinStream& stream = *streams_[i];
      const std::int64_t row = shared_rows ? 0 : static_cast<std::int64_t>(i) * each;
      expected.push_back(by_the_sampler(stream, rounded, row, drafts, (seed + i) % 3));
      draws.push_back({.sampler = &stream.device,
                       .stream = 100 + i,
                       .row = row,
                       .drafts = stream.drafts,
                       .top_logprobs = stream.top,
                       .drawn = &stream.drawn});
    }
    draws_on_device_.draw(logits, draws);
    EXPECT_TRUE(logits.untouched());
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "stream " << i << " seed " << seed);
      compare(streams_[i]->drawn, expected[i]);
      EXPECT_EQ(streams_[i]->device.draws(), streams_[i]->host.draws());
    }
  }

 private:
  // What the host draws. Drafts are made on the way: the first `right` of them are what it draws.
  static std::vector<Sampled> by_the_sampler(TwinStream& stream, const Array& logits,
                                             std::int64_t row, std::size_t drafts,
                                             std::size_t right) {
    std::vector<Sampled> drawn;
    stream.drafts.assign(drafts, 0);
    for (std::size_t i = 0; i <= drafts; ++i) {
      const double* values = logits.row(row + static_cast<std::int64_t>(i));
      const std::vector<float> floats(values, values + kVocab);
      drawn.push_back(stream.host.sample(floats, stream.top));
      if (i == drafts) break;
      const std::int32_t id = drawn.back().token.id;
      stream.drafts[i] = i < right ? id : (id + 1) % static_cast<std::int32_t>(kVocab);
      if (i >= right) break;
    }
    return drawn;
  }

  static void compare(const std::vector<Sampled>& actual, const std::vector<Sampled>& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
      EXPECT_EQ(actual[i].token.id, expected[i].token.id);
      EXPECT_NEAR(actual[i].token.logprob, expected[i].token.logprob, 1e-5);
      ASSERT_EQ(actual[i].top.size(), expected[i].top.size());
      for (std::size_t j = 0; j < actual[i].top.size(); ++j) {
        EXPECT_EQ(actual[i].top[j].id, expected[i].top[j].id);
        EXPECT_NEAR(actual[i].top[j].logprob, expected[i].top[j].logprob, 1e-5);
      }
    }
  }

  Context& ctx_;
  std::vector<std::unique_ptr<TwinStream>> streams_;
  DeviceDraws draws_on_device_;
};

std::vector<std::unique_ptr<TwinStream>> streams_of(const std::vector<SamplingOptions>& options,
                                                    const std::vector<std::int64_t>& tops) {
  std::vector<std::unique_ptr<TwinStream>> streams;
  for (const std::int64_t top : tops) {
    for (const SamplingOptions& o : options) {
      streams.push_back(std::make_unique<TwinStream>(o, top));
    }
  }
  return streams;
}

class DeviceDrawsTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, DeviceDrawsTest, testing::ValuesIn(test_devices()), device_name);

TEST_P(DeviceDrawsTest, TokensOfTheSampler) {
  DrawnSteps steps(ctx(), streams_of(stream_options(), {-1}), 16);
  for (std::uint64_t seed = 1; seed <= 4; ++seed) steps.step(seed, 0);
  EXPECT_EQ(ctx().trace().calls("sample", GetParam().is_cpu() ? "cpu" : "cuda"), 0);
}

TEST_P(DeviceDrawsTest, LogprobsOfTheSampler) {
  DrawnSteps steps(ctx(), streams_of(stream_options(), {0, -1, 3}), 32);
  for (std::uint64_t seed = 1; seed <= 2; ++seed) steps.step(seed, 0);
}

// Counts change from row to row, and wrong drafts must leave none behind.
TEST_P(DeviceDrawsTest, DraftsWithAndWithoutPenalties) {
  DrawnSteps steps(ctx(), streams_of(stream_options(), {-1}), 32);
  for (std::uint64_t seed = 1; seed <= 5; ++seed) steps.step(seed, seed % 4);
}

// The choices of one prompt share its last row. Few rows at a time, so that there are many calls.
TEST_P(DeviceDrawsTest, SharedRowsInSmallCalls) {
  DrawnSteps steps(ctx(), streams_of(stream_options(), {-1, 2}), 3);
  steps.step(1, 0, true);
  steps.step(2, 0);
}

// A slot is taken over by another stream, and filled again for the first one.
TEST_P(DeviceDrawsTest, SlotsAreFilledAgain) {
  const SamplingOptions options{.greedy = true, .frequency_penalty = 2.0};
  std::vector<Sampler> device, host;
  for (int i = 0; i < 3; ++i) {
    device.emplace_back(options);
    host.emplace_back(options);
  }
  DeviceDraws draws(ctx(), kVocab, 4);
  const Array values = random_normal({1, kVocab}, 2, 1.0);
  const TestTensor logits(ctx(), values, DType::f32);
  const Array rounded = logits.read();
  const std::vector<float> row(rounded.data.begin(), rounded.data.end());
  std::vector<Sampled> drawn;
  for (const std::size_t i : {0, 1, 0, 2, 1, 1, 0, 0, 2}) {
    Draw draw{.sampler = &device[i], .stream = i, .drawn = &drawn};
    draws.draw(logits, {&draw, 1});
    ASSERT_EQ(drawn.size(), 1u);
    EXPECT_EQ(drawn.front().token.id, host[i].sample(row, -1).token.id);
  }
}

// On a GPU. On the CPU, where the engine does not use this, ops keep their scratch on the heap.
TEST_P(DeviceDrawsTest, AllocatesNothingOnceItIsWarm) {
  if (GetParam().is_cpu()) GTEST_SKIP() << "a CPU draws by its Samplers";
  if (!AllocationCounter::works()) GTEST_SKIP() << "a sanitizer has its own operator new";
  Context context({.device = GetParam(), .threads = 1});  // without a trace, which keeps texts
  const TestTensor logits(context, random_normal({4, kVocab}, 2, 1.0), DType::f32);
  std::vector<Sampler> samplers;
  for (const SamplingOptions& o : stream_options()) samplers.emplace_back(o);
  std::vector<std::vector<Sampled>> drawn(samplers.size());
  DeviceDraws on_device(context, kVocab, 8);
  std::vector<Draw> draws(samplers.size());
  const auto step = [&] {
    for (std::size_t i = 0; i < samplers.size(); ++i) {
      draws[i] = {.sampler = &samplers[i],
                  .stream = i,
                  .row = static_cast<std::int64_t>(i % 4),
                  .top_logprobs = i % 2 == 0 ? 0 : -1,
                  .drawn = &drawn[i]};
    }
    on_device.draw(logits, draws);
  };
  for (int i = 0; i < 3; ++i) step();
  const AllocationCounter counter;
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(counter.count(), 0);
}

// No token: the draw is left to the host, and the others are drawn.
TEST_P(DeviceDrawsTest, LeavesWhatOnlyTheHostCanDraw) {
  Array values = random_normal({3, kVocab}, 2, 1.0);
  values.at(1, 4) = NAN;
  const TestTensor logits(ctx(), values, DType::f32);
  Sampler plain({}), bad({}), penalised({.presence_penalty = 1}), many({});
  std::vector<Sampled> of_plain, of_bad, of_penalised, of_many;
  std::vector<Draw> draws = {
      {.sampler = &plain, .stream = 1, .row = 0, .drawn = &of_plain},
      {.sampler = &bad, .stream = 2, .row = 1, .drawn = &of_bad},
      {.sampler = &penalised, .stream = 3, .row = 1, .top_logprobs = 2, .drawn = &of_penalised},
      {.sampler = &many,
       .stream = 4,
       .row = 2,
       .top_logprobs = DeviceDraws::kMostTop + 1,
       .drawn = &of_many}};
  DeviceDraws(ctx(), kVocab, 4).draw(logits, draws);
  EXPECT_EQ(of_plain.size(), 1u);
  EXPECT_TRUE(of_bad.empty() && of_penalised.empty() && of_many.empty());
  EXPECT_EQ(bad.draws() + penalised.draws() + many.draws(), 0u);
}

}  // namespace
}  // namespace tessera::test
