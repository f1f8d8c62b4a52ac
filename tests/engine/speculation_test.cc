// Guessing ahead: what is guessed, how long guesses are, and that they never change the text.
#include "tessera/speculation.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "engine/draft_length.h"
#include "engine/ngram_draft.h"
#include "engine/step_runner.h"
#include "support/brittle_model.h"
#include "support/devices.h"
#include "support/files.h"
#include "tessera/engine.h"

namespace tessera::test {
namespace {

using engine::DraftLength;
using engine::NgramDraft;
using engine::RowCost;
using Ids = std::vector<std::int32_t>;

TEST(NgramDraft, GuessesWhatFollowedTheLastTokensBefore) {
  NgramDraft draft;
  Ids drafts;
  draft.propose(Ids{1, 2, 3, 4, 5, 6, 9, 2, 3}, 3, drafts);
  EXPECT_EQ(drafts, (Ids{4, 5, 6}));
  // The latest occurrence counts, and a longer run before a shorter one.
  NgramDraft other;
  other.propose(Ids{7, 2, 3, 4, 1, 2, 3, 5, 7, 2, 3}, 1, drafts);
  EXPECT_EQ(drafts, (Ids{4}));
}

TEST(NgramDraft, GuessesNothingAfterTokensItHasNotSeen) {
  NgramDraft draft;
  Ids drafts{1};
  draft.propose(Ids{1, 2, 3, 4}, 4, drafts);
  EXPECT_EQ(drafts, Ids{});
  draft.propose(Ids{1, 2, 3, 4, 5}, 0, drafts);
  EXPECT_EQ(drafts, Ids{});
}

TEST(NgramDraft, ContinuesARepetitionBeyondTheEnd) {
  NgramDraft draft;
  Ids drafts;
  draft.propose(Ids{5, 1, 2, 1, 2}, 5, drafts);
  EXPECT_EQ(drafts, (Ids{1, 2, 1, 2, 1}));
}

TEST(NgramDraft, LearnsAsTheStreamGrows) {
  NgramDraft draft;
  Ids ids{1, 2, 3}, drafts;
  draft.propose(ids, 2, drafts);
  EXPECT_EQ(drafts, Ids{});
  ids.insert(ids.end(), {8, 1, 2});
  draft.propose(ids, 2, drafts);
  EXPECT_EQ(drafts, (Ids{3, 8}));
}

// The run (961, 269, 1955370215, 1122) has the hash of (1, 2), which begins too early for it.
TEST(NgramDraft, ARunOfAnotherLengthWithTheSameHashIsNoOccurrence) {
  NgramDraft draft;
  Ids drafts;
  draft.propose(Ids{1, 2, 961, 269, 1955370215, 1122}, 3, drafts);
  EXPECT_EQ(drafts, Ids{});
}

TEST(DraftLength, GrowsWithSuccessAndEndsWithFailure) {
  DraftLength length;
  for (int i = 0; i < 30; ++i) length.learn(4, 4);
  EXPECT_EQ(length.next(0.05, 8), 8);
  for (int i = 0; i < 30; ++i) length.learn(1, 0);
  EXPECT_EQ(length.next(0.05, 8), 0);
  // Now and then it tries again.
  std::int64_t tries = 0;
  for (int i = 0; i < 100; ++i) tries += length.next(0.05, 8);
  EXPECT_EQ(tries, 3);
}

TEST(DraftLength, IsOffWhereARowCostsAsMuchAsAToken) {
  DraftLength length;
  for (int i = 0; i < 30; ++i) length.learn(4, 4);
  EXPECT_EQ(length.next(1.0, 8), 0);
}

TEST(RowCost, IsTheShareOfAStepThatARowTakes) {
  RowCost cost;
  for (int i = 0; i < 50; ++i) {
    for (const std::int64_t rows : {4, 6, 9}) {
      cost.learn(rows, 3e-3 + 1e-3 * static_cast<double>(rows));
    }
  }
  EXPECT_NEAR(cost.in_tokens(1), 1.0 / 4.0, 1e-6);
  EXPECT_NEAR(cost.in_tokens(3), 3.0 / 6.0, 1e-6);
  // A model that guesses takes its time as well.
  EXPECT_NEAR(cost.in_tokens(3, 1.5e-3), 4.5 / 6.0, 1e-6);
}

TEST(RowCost, CountsTheGuessBeforeTheRowIsKnown) {
  RowCost cost;
  EXPECT_DOUBLE_EQ(cost.in_tokens(1), 0.3);
  EXPECT_DOUBLE_EQ(cost.in_tokens(1, 1.0), 0.3);  // no step has been seen yet
  cost.learn(1, 2e-3);
  EXPECT_DOUBLE_EQ(cost.in_tokens(1), 0.3);
  EXPECT_DOUBLE_EQ(cost.in_tokens(1, 1e-3), 0.8);
}

// A model whose logits are the same after every token.
class FixedLogits final : public Model {
 public:
  explicit FixedLogits(std::vector<float> logits) : logits_(std::move(logits)) {
    config_.vocab = std::ssize(logits_);
  }
  void forward(Context&, const ForwardArgs& args) const override {
    for (std::int64_t r = 0; r < args.logits.size(0); ++r) {
      std::copy(logits_.begin(), logits_.end(), args.logits.select(0, r).ptr<float>());
    }
  }

 private:
  std::vector<float> logits_;
};

// Whatever is guessed, the first and the second token have the model's own distribution: chi-square
// over 8 tokens, where 24.3 is exceeded once in a thousand.
TEST(Speculation, DrawnTokensHaveTheDistributionOfTheModel) {
  constexpr std::size_t kVocab = 8;
  constexpr int kDraws = 20000;
  const std::vector<float> logits{0.f, 1.f, -1.f, 0.5f, 2.f, -0.5f, 0.2f, 1.5f};
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  Context ctx({.threads = 1});
  const FixedLogits model(logits);
  StepRunner runner(ctx, model, 3);
  CacheStep step;
  step.logits = 3;
  runner.forward(step);
  std::array<std::array<double, kVocab>, 2> counts{};
  std::array<double, 2> draws{};
  std::vector<Sampled> drawn;
  for (int i = 0; i < kDraws; ++i) {
    Sampler sampler({.seed = static_cast<std::uint64_t>(i)});
    const Ids drafts{i % 3 == 0 ? 4 : 7, i % 8};
    Draw draw{.sampler = &sampler, .row = 0, .drafts = drafts, .drawn = &drawn};
    runner.draw({&draw, 1});
    ASSERT_EQ(draw.error, nullptr);
    for (std::size_t t = 0; t < 2 && t < drawn.size(); ++t) {
      counts[t][static_cast<std::size_t>(drawn[t].token.id)] += 1;
      draws[t] += 1;
    }
    // As many tokens as guesses were right, and one more.
    for (std::size_t t = 0; t + 1 < drawn.size(); ++t) EXPECT_EQ(drawn[t].token.id, drafts[t]);
    if (drawn.size() < 3) {
      EXPECT_NE(drawn.back().token.id, drafts[drawn.size() - 1]);
    }
  }
  for (std::size_t t = 0; t < 2; ++t) {
    double chi_square = 0;
    for (std::size_t id = 0; id < kVocab; ++id) {
      const double expected = draws[t] * std::exp(static_cast<double>(logits[id])) / total;
      chi_square += (counts[t][id] - expected) * (counts[t][id] - expected) / expected;
    }
    EXPECT_LT(chi_square, 24.3) << "token " << t;
  }
}

class SpeculationTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, SpeculationTest, testing::ValuesIn(test_devices()), device_name);

std::vector<Ids> texts_of(Context& ctx, const Model& model, const SpeculationOptions& speculation,
                          EngineStats* stats) {
  std::vector<Ids> texts;
  Engine engine(ctx, model, nullptr,
                {.context = 160, .max_sequences = 6, .page_size = 8, .speculation = speculation});
  std::vector<RequestHandle> handles;
  for (int i = 0; i < 9; ++i) {
    Request request;
    for (int t = 0; t < 12; ++t) request.prompt_ids.push_back((t * (i + 1)) % 5);
    request.options = {.max_tokens = 60, .ignore_eos = true};
    request.options.sampling.greedy = i % 3 != 1;
    request.options.sampling.temperature = 0.3;
    request.options.sampling.presence_penalty = i % 3 == 2 ? 0.2 : 0;
    request.policy = i % 4 == 0   ? CachePolicy::last(20)
                     : i % 4 == 1 ? CachePolicy::sinks(2, 18)
                                  : CachePolicy::full();
    handles.push_back(engine.submit(request));
  }
  for (RequestHandle& handle : handles) texts.push_back(handle.wait()[0].ids);
  *stats = engine.stats();
  return texts;
}

TEST_P(SpeculationTest, TheTextIsTheSameAsWithout) {
  const auto model =
      load_model(ctx(), data_path("goldens") / "neox-serial-untied", {.dtype = DType::f32});
  EngineStats stats;
  const std::vector<Ids> plain = texts_of(ctx(), *model, {}, &stats);
  EXPECT_EQ(stats.drafted_tokens, 0);
  for (const bool adaptive : {true, false}) {
    EXPECT_EQ(texts_of(ctx(), *model,
                       {.kind = SpeculationOptions::Kind::ngram, .adaptive = adaptive}, &stats),
              plain);
    EXPECT_GT(stats.accepted_tokens, 0);
    // The best draft model there is: the model itself.
    EXPECT_EQ(
        texts_of(
            ctx(), *model,
            {.kind = SpeculationOptions::Kind::draft, .adaptive = adaptive, .draft = model.get()},
            &stats),
        plain);
    EXPECT_GT(stats.accept_rate(), 0.5);
    if (!adaptive) {
      EXPECT_GT(stats.drafted_tokens, stats.generated_tokens / 2);
    }
  }
}

// Six requests run and three wait. No failure of the draft model ends any of them.
TEST_P(SpeculationTest, ADraftModelThatFailsEndsNothing) {
  const auto model =
      load_model(ctx(), data_path("goldens") / "neox-serial-untied", {.dtype = DType::f32});
  EngineStats stats;
  const std::vector<Ids> plain = texts_of(ctx(), *model, {}, &stats);
  for (const bool adaptive : {true, false}) {
    const Brittle draft(*model);
    const SpeculationOptions speculation{
        .kind = SpeculationOptions::Kind::draft, .adaptive = adaptive, .draft = &draft};
    draft.fails_every = 30;
    EXPECT_EQ(texts_of(ctx(), *model, speculation, &stats), plain);
    EXPECT_EQ(stats.failed, 0);
    if (!adaptive) {  // otherwise it depends on times whether much is guessed
      EXPECT_GT(stats.failed_guesses, 0);
      EXPECT_GT(stats.accepted_tokens, 0);
    }
    draft.fails_every = 1;
    EXPECT_EQ(texts_of(ctx(), *model, speculation, &stats), plain);
    EXPECT_EQ(stats.drafted_tokens, 0);
    if (adaptive) {
      EXPECT_LT(stats.failed_guesses, stats.steps * 3 / 4);  // it is hardly asked any more
    } else {
      EXPECT_GT(stats.failed_guesses, stats.steps * 3 / 4);
    }
    draft.fails_every = 0;
    draft.throws_a_number = true;
    EXPECT_EQ(texts_of(ctx(), *model, speculation, &stats), plain);
    EXPECT_EQ(stats.failed, 0);
  }
}

// A model that takes its time.
class Slow final : public Model {
 public:
  explicit Slow(const Model& model) : model_(model) {
    config_ = model.config();
    dtype_ = model.dtype();
  }
  void forward(Context& ctx, const ForwardArgs& args) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    model_.forward(ctx, args);
  }

 private:
  const Model& model_;
};

// Its guesses are always right, but take longer than the tokens themselves.
TEST(Speculation, ADraftModelThatDoesNotPayIsLeftAlone) {
  Context ctx({.threads = 1});
  const auto model = load_model(ctx, data_path("goldens") / "neox-serial-untied");
  const Slow draft(*model);
  const auto drafted = [&](bool adaptive) {
    Engine engine(
        ctx, *model, nullptr,
        {.context = 160,
         .speculation = {
             .kind = SpeculationOptions::Kind::draft, .adaptive = adaptive, .draft = &draft}});
    Request request;
    request.prompt_ids = {1, 2, 3};
    request.options = {.max_tokens = 60, .ignore_eos = true, .sampling = {.greedy = true}};
    engine.submit(request).wait();
    engine.drain_until(std::chrono::steady_clock::now() + std::chrono::seconds(10));
    return engine.stats().drafted_tokens;
  };
  EXPECT_GT(drafted(false), 40);
  EXPECT_LT(drafted(true), 10);
}

TEST(Speculation, RefusesADraftModelOfAnotherVocabulary) {
  Context ctx({.threads = 1});
  const auto model = load_model(ctx, data_path("goldens") / "neox-serial-untied");
  const FixedLogits draft({1.f, 2.f});
  try {
    const Engine engine(
        ctx, *model, nullptr,
        {.speculation = {.kind = SpeculationOptions::Kind::draft, .draft = &draft}});
    FAIL() << "was not refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("a vocabulary of 2 tokens"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::test
