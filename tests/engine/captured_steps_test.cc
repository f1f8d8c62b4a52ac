// Steps that a GPU records and replays, and steps that are launched before the tokens of the last
// one have been read: the same tokens as one op after the other, with a wait behind each.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/forward_ids.h"
#include "engine/step_graphs.h"
#include "engine/step_runner.h"
#include "support/devices.h"
#include "support/files.h"
#include "support/random_neox.h"
#include "tessera/engine.h"
#include "tessera/generate.h"

namespace tessera::test {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::int64_t kContext = 80;
const Ids kPrompt = {5, 9, 2, 7, 7, 1};

class CapturedStepsTest : public DeviceTest {
 protected:
  // ctx() traces, so it waits for every op and records nothing.
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    if (GetParam().is_cpu()) GTEST_SKIP() << "the CPU has no graphs";
    free_ = std::make_unique<Context>(ContextOptions{.device = GetParam(), .threads = 1});
  }
  void load(const char* golden) {
    model_ = load_model(ctx(), data_path("goldens") / golden, {.dtype = DType::f32});
  }
  GenerateResult generate_on(Context& ctx, const CachePolicy& policy,
                             const GenerateOptions& options) const {
    KvCache cache = model_->make_cache(ctx, policy, kContext, 16);
    return generate(ctx, *model_, cache, nullptr, kPrompt, options);
  }

  std::unique_ptr<Context> free_;  // without a trace
  std::unique_ptr<Model> model_;
};
INSTANTIATE_TEST_SUITE_P(Devices, CapturedStepsTest, testing::ValuesIn(test_devices()),
                         device_name);

TEST_P(CapturedStepsTest, GenerateMakesTheSameTokens) {
  const SamplingOptions greedy{.greedy = true}, plain{.temperature = 0.8, .seed = 3},
      head{.temperature = 0.9, .top_k = 12, .top_p = 0.9, .seed = 4},
      penalty{.greedy = true, .repetition_penalty = 1.2};
  const CachePolicy full = CachePolicy::full(), window = CachePolicy::last(10),
                    sinks = CachePolicy::sinks(2, 9);
  struct Case {
    const char* golden;
    CachePolicy policy;
    SamplingOptions sampling;
  };
  const Case cases[] = {{"neox-parallel", full, greedy}, {"neox-parallel", window, plain},
                        {"neox-parallel", sinks, head},  {"neox-parallel", sinks, penalty},
                        {"llama-gqa", full, head},       {"llama-gqa", sinks, greedy}};
  for (const auto& [golden, policy, sampling] : cases) {
    load(golden);
    const GenerateOptions options{.max_tokens = 14, .ignore_eos = true, .sampling = sampling};
    const Ids expected = generate_on(ctx(), policy, options).ids;
    EXPECT_EQ(generate_on(*free_, policy, options).ids, expected)
        << golden << " " << to_string(policy);
    Context plain_launches({.device = GetParam(), .threads = 1, .graphs = false});
    EXPECT_EQ(generate_on(plain_launches, policy, options).ids, expected)
        << golden << " " << to_string(policy) << ", no graphs";
  }
}

// One kernel for all layers, or one for each op; recorded, launched ahead, or traced.
TEST_P(CapturedStepsTest, OneKernelForAllLayersMakesTheTokensOfTheOps) {
  const GenerateOptions options{.max_tokens = is_emulated(GetParam()) ? 4 : 12,
                                .ignore_eos = true,
                                .sampling = {.greedy = true}};
  Context plain_launches({.device = GetParam(), .threads = 1, .graphs = false});
  for (const std::optional<Format> format : {std::optional<Format>(), {Format::nvfp4}}) {
    if (format && is_emulated(GetParam())) continue;  // to pack takes long there
    std::vector<Ids> ids;
    for (const bool fuses : {true, false}) {
      model_ = random_neox(ctx(), format, fuses);
      for (Context* context : {&ctx(), free_.get(), &plain_launches}) {
        ids.push_back(generate_on(*context, CachePolicy::full(), options).ids);
        EXPECT_EQ(ids.back(), ids.front()) << (fuses ? "fused, run " : "run ") << ids.size();
      }
    }
    EXPECT_EQ(std::ssize(ids.front()), options.max_tokens);
  }
}

// The step that was launched ahead has left no trace in the cache, whatever ended the text.
TEST_P(CapturedStepsTest, TheCacheEndsWhereTheTextDoes) {
  load("neox-parallel");
  GenerateOptions options{.max_tokens = 20, .ignore_eos = true, .sampling = {.greedy = true}};
  const Ids whole = generate_on(ctx(), CachePolicy::full(), options).ids;
  // Ends at its seventh token, if that is its first of this kind.
  const std::size_t end =
      static_cast<std::size_t>(std::find(whole.begin(), whole.end(), whole[6]) - whole.begin());
  for (const CachePolicy& policy :
       {CachePolicy::full(), CachePolicy::last(64), CachePolicy::sinks(4, 60)}) {
    KvCache cache = model_->make_cache(*free_, policy, kContext, 16);
    options.stop_ids = {whole[6]};
    const GenerateResult first = generate(*free_, *model_, cache, nullptr, kPrompt, options);
    ASSERT_EQ(first.reason, StopReason::eos);
    ASSERT_EQ(first.ids, Ids(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(end) + 1));
    EXPECT_EQ(cache.seen(), std::ssize(kPrompt) + std::ssize(first.ids) - 1);

    options.stop_ids = {};
    options.max_tokens = 20 - std::ssize(first.ids);
    const Ids rest = generate(*free_, *model_, cache, nullptr, {&first.ids.back(), 1}, options).ids;
    EXPECT_EQ(rest, Ids(whole.begin() + std::ssize(first.ids), whole.end())) << to_string(policy);
    options.max_tokens = 20;
  }
}

TEST_P(CapturedStepsTest, ACallbackThatThrowsLeavesTheTokensBeforeIt) {
  load("neox-parallel");
  const GenerateOptions options{.max_tokens = 20, .ignore_eos = true, .sampling = {.greedy = true}};
  KvCache cache = model_->make_cache(*free_, CachePolicy::full(), kContext, 16);
  int tokens = 0;
  const auto throws_at_five = [&](const GeneratedToken&) {
    if (++tokens == 5) throw std::runtime_error("enough");
  };
  EXPECT_THROW(generate(*free_, *model_, cache, nullptr, kPrompt, options, throws_at_five),
               std::runtime_error);
  EXPECT_EQ(cache.seen(), std::ssize(kPrompt) + 4);
}

TEST_P(CapturedStepsTest, ADecodeStepIsRecordedAtItsSecondTime) {
  load("llama-gqa");
  KvCache cache = model_->make_cache(*free_, CachePolicy::full(), kContext, 16);
  reserved_workspace(*free_, *model_, cache, 1);
  StepRunner runner(*free_, *model_, 1);
  runner.forward(cache.step(*free_, kPrompt, 1));
  EXPECT_EQ(runner.graph_launches(), 0);
  Sampler sampler({.greedy = true});
  std::vector<Sampled> drawn;
  for (std::int32_t i = 0; i < 6; ++i) {
    Draw draw{.sampler = &sampler, .drawn = &drawn};
    ASSERT_TRUE(runner.can_start({&draw, 1}));
    runner.start(cache.step(*free_, {&i, 1}, 1), {&draw, 1});
    runner.finish({&draw, 1});
    ASSERT_EQ(drawn.size(), 1u);
    EXPECT_EQ(runner.graph_launches(), std::max(i, 0));
  }
}

// The GPU makes the small tensors of each step from those of the one before, turns the pages of a
// stream round, and counts its draws.
TEST_P(CapturedStepsTest, AnEndlessStreamUploadsNothing) {
  load("neox-parallel");
  const SamplingOptions sampling{.temperature = 0.8, .seed = 5};
  const int steps = is_emulated(GetParam()) ? 40 : 400;
  for (const CachePolicy& policy : {CachePolicy::sinks(2, 9), CachePolicy::last(40)}) {
    SCOPED_TRACE(to_string(policy));
    KvCache cache = model_->make_cache(*free_, policy, kContext, 16);
    reserved_workspace(*free_, *model_, cache, 1);
    StepRunner runner(*free_, *model_, 1);
    Sampler sampler(sampling);
    std::vector<Sampled> drawn;
    Draw draw{.sampler = &sampler, .drawn = &drawn};
    const auto step = [&](std::span<const std::int32_t> ids) {
      runner.start(cache.step(*free_, ids, 1), {&draw, 1});
      runner.finish({&draw, 1});
    };
    // Until it holds all its pages: two of 64 tokens.
    const Ids some(9, 3);
    while (cache.seen() < 80) step(std::span(some).first(cache.step_size(9)));
    const std::int32_t name = AheadDraws::name_of(0);
    step({&name, 1});
    const std::int64_t uploads = cache.batch().uploads(), draws = runner.draw_uploads();
    for (int i = 0; i < steps; ++i) step({&name, 1});
    EXPECT_EQ(cache.batch().uploads(), uploads);
    EXPECT_EQ(runner.draw_uploads(), draws);
  }
}

// A page is 64 tokens: the streams turn their pages round several times.
TEST_P(CapturedStepsTest, LongStreamsMakeTheSameTokens) {
  load("neox-parallel");
  const std::int64_t tokens = is_emulated(GetParam()) ? 70 : 330;
  const GenerateOptions options{
      .max_tokens = tokens, .ignore_eos = true, .sampling = {.temperature = 0.8, .seed = 6}};
  for (const CachePolicy& policy :
       {CachePolicy::sinks(2, 9), CachePolicy::sinks(5, 70), CachePolicy::last(33)}) {
    SCOPED_TRACE(to_string(policy));
    const Ids expected = generate_on(ctx(), policy, options).ids;
    KvCache cache = model_->make_cache(*free_, policy, kContext, 16);
    EXPECT_EQ(generate(*free_, *model_, cache, nullptr, kPrompt, options).ids, expected);
    // The prompt, the first token behind it, and a page of 64 now and then until it has them all.
    EXPECT_LE(cache.batch().uploads(), 6);
  }
}

// Twelve streams are sixteen rows, four of which are nobody's.
TEST_P(CapturedStepsTest, AnEngineMakesTheSameTokensWithAndWithoutGraphs) {
  load("qwen3");
  const auto tokens_with = [&](Context& ctx) {
    Engine engine(ctx, *model_, nullptr,
                  {.context = kContext, .max_sequences = 16, .page_size = 8});
    std::vector<RequestHandle> handles;
    for (std::int32_t i = 0; i < 12; ++i) {
      Request request;
      request.prompt_ids = {i, 3, i + 1};
      request.policy = i % 4 == 3 ? CachePolicy::sinks(2, 9) : CachePolicy::full();
      request.options = {.max_tokens = 8 + i,
                         .ignore_eos = true,
                         .sampling = {.temperature = i % 2 == 0 ? 0.0 : 0.7,
                                      .seed = static_cast<std::uint64_t>(i)}};
      handles.push_back(engine.submit(request));
    }
    std::vector<Ids> ids;
    for (RequestHandle& handle : handles) ids.push_back(handle.wait()[0].ids);
    return ids;
  };
  EXPECT_EQ(tokens_with(*free_), tokens_with(ctx()));
}

TEST(StepGraphs, ADecodeStepIsOneTokenOfEachStream) {
  CacheStep step;
  step.tokens = step.few_rows = step.logits = 3;
  step.groups = {{.rows = 3, .sequences = 3}};
  EXPECT_TRUE(is_decode_step(step));
  step.groups = {{.rows = 3, .sequences = 1}};  // a chunk
  EXPECT_FALSE(is_decode_step(step));
  step.groups = {{.rows = 3, .sequences = 3}};
  step.logits = 1;
  EXPECT_FALSE(is_decode_step(step));
}

}  // namespace
}  // namespace tessera::test
