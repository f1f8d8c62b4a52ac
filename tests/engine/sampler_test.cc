// Compares the sampler with a slow, obvious version in float64 that sorts the whole vocabulary.
// Also tests the distribution of its draws, and what it refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ops/sampling_table.h"
#include "reference/sample.h"
#include "support/refusal.h"
#include "tessera/context.h"
#include "tessera/error.h"
#include "tessera/sampling.h"

namespace tessera::test {
namespace {

using Logits = std::vector<float>;
using Ids = std::vector<std::int32_t>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Logits noise(std::size_t vocab, std::uint32_t seed, float spread = 3.f) {
  std::mt19937 engine(seed);
  Logits logits(vocab);
  for (float& v : logits) {
    // Sums of twelve uniforms are the same on every standard library, unlike normal_distribution.
    float sum = -6.f;
    for (int i = 0; i < 12; ++i) sum += static_cast<float>(engine() >> 8) * 0x1p-24f;
    v = spread * sum;
  }
  return logits;
}

// ---- the slow version ---------------------------------------------------------------------------

struct Seen {
  std::vector<std::int32_t> prompt, generated;
};

std::vector<double> adjusted(const Logits& logits, const SamplingOptions& o, const Seen& seen) {
  std::vector<double> x(logits.begin(), logits.end());
  for (const auto& [id, bias] : o.logit_bias) {
    x[static_cast<std::size_t>(id)] = logits[static_cast<std::size_t>(id)] + bias;
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    const auto count = std::count(seen.generated.begin(), seen.generated.end(), id);
    const bool any = count > 0 || std::count(seen.prompt.begin(), seen.prompt.end(), id) > 0;
    if (any) x[i] = x[i] > 0 ? x[i] / o.repetition_penalty : x[i] * o.repetition_penalty;
    if (count > 0) x[i] -= o.presence_penalty + o.frequency_penalty * static_cast<double>(count);
  }
  return x;
}

// Ids by likelihood. Among equals, the lower id comes first.
std::vector<std::size_t> order_of(const std::vector<double>& x) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return x[a] > x[b]; });
  return order;
}

// The probability of each token after all options.
std::vector<double> slow_distribution(const Logits& logits, const SamplingOptions& o,
                                      const Seen& seen) {
  return reference::distribution(adjusted(logits, o, seen),
                                 {.temperature = o.greedy ? 0.0 : o.temperature,
                                  .top_k = o.top_k,
                                  .top_p = o.top_p,
                                  .min_p = o.min_p});
}

// ---- the table ----------------------------------------------------------------------------------

TEST(SamplingTable, DefaultsAreAcceptedAndTheSameForTheDraw) {
  const SamplingOptions options;
  const SampleArgs args;
  std::set<std::string_view> names;
  for (const SamplingOption& option : sampling_table()) {
    SCOPED_TRACE(option.name);
    EXPECT_TRUE(names.insert(option.name).second);
    EXPECT_TRUE(option.accepts(option.value(options)));
    EXPECT_FALSE(option.accepted.empty() || option.help.empty());
    // An option has one field, of either kind. Its field for the draw is of the same kind.
    EXPECT_NE(option.number == nullptr, option.count == nullptr);
    if (!option.is_drawn()) continue;
    EXPECT_EQ(option.drawn_number == nullptr, option.number == nullptr);
    EXPECT_EQ(option.value(args), option.value(options));
  }
}

TEST(SamplingTable, TheDrawTakesWhatTheOptionsSay) {
  SamplingOptions options;
  for (const SamplingOption& option : sampling_table()) {
    if (option.number) options.*option.number = 0.25;
    if (option.count) options.*option.count = 7;
  }
  SampleArgs args;
  copy_draw_options(options, args);
  EXPECT_EQ(args.temperature, 0.25);
  EXPECT_EQ(args.top_k, 7);
  EXPECT_EQ(args.top_p, 0.25);
  EXPECT_EQ(args.min_p, 0.25);
}

// ---- each option --------------------------------------------------------------------------------

struct Case {
  std::string name;
  SamplingOptions options;
  std::size_t vocab = 301;
  float spread = 3.f;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class SamplerCase : public testing::TestWithParam<Case> {};

TEST_P(SamplerCase, DrawsWhatTheSlowVersionDraws) {
  const Case& c = GetParam();
  Sampler sampler(c.options);
  Seen seen{.prompt = {3, 5, 5, 7, 150}, .generated = {}};
  sampler.see_prompt(seen.prompt);
  const std::uint64_t draws = c.vocab > 10000 ? 8 : 200;
  for (std::uint64_t draw = 0; draw < draws; ++draw) {
    const Logits logits = noise(c.vocab, static_cast<std::uint32_t>(draw), c.spread);
    const std::vector<double> p = slow_distribution(logits, c.options, seen);
    const std::int32_t token = sampler.sample(logits).token.id;
    ASSERT_EQ(token, reference::drawn_token(p, c.options.seed, draw)) << "draw " << draw;
    seen.generated.push_back(token);
  }
}

// sample() draws the same token from next_draw(). This runs on the CPU; tests/ops covers every
// device.
TEST_P(SamplerCase, SampleDrawsTheSame) {
  const Case& c = GetParam();
  Sampler sampler(c.options), elsewhere(c.options);
  const bool changes_logits = !c.options.logit_bias.empty() || c.options.repetition_penalty != 1 ||
                              c.options.presence_penalty != 0 || c.options.frequency_penalty != 0;
  ASSERT_EQ(elsewhere.next_draw().has_value(), !changes_logits);
  if (changes_logits) return;
  Context ctx({.threads = 1});
  for (std::uint32_t draw = 0; draw < (c.vocab > 10000 ? 8u : 50u); ++draw) {
    Logits logits = noise(c.vocab, draw, c.spread);
    std::int32_t id = -1;
    SampleArgs args = *elsewhere.next_draw();
    args.logits = Tensor(logits.data(), DType::f32, {std::ssize(logits)}, Device::cpu());
    args.ids = Tensor(&id, DType::i32, {1}, Device::cpu());
    sample(ctx, args);
    elsewhere.accept(id);
    ASSERT_EQ(id, sampler.sample(logits).token.id) << draw;
  }
}

TEST(Sampler, RefusesATokenThatWasNotDrawn) {
  Sampler sampler({});
  EXPECT_TRUE(refuses([&] { sampler.accept(-1); }, "token -1 was drawn; ids start at 0"));
}

INSTANTIATE_TEST_SUITE_P(
    Options, SamplerCase,
    testing::Values(
        Case{"defaults", {}}, Case{"seed", {.seed = 0x123456789abcdefULL}},
        Case{"greedy", {.greedy = true}}, Case{"temperature_0", {.temperature = 0}},
        Case{"temperature_low", {.temperature = 0.3}}, Case{"temperature_high", {.temperature = 4}},
        Case{"temperature_tiny", {.temperature = 1e-300}}, Case{"top_k_1", {.top_k = 1}},
        Case{"top_k_5", {.top_k = 5}}, Case{"top_k_more_than_blocks", {.top_k = 40}},
        Case{"top_k_all", {.top_k = 301}}, Case{"top_k_beyond", {.top_k = 5000}},
        Case{"top_p_tiny", {.top_p = 1e-9}}, Case{"top_p", {.top_p = 0.9}},
        Case{"top_p_flat", {.top_p = 0.5}, 301, 0.01f}, Case{"top_p_almost_1", {.top_p = 0.999999}},
        Case{"min_p", {.min_p = 0.1}}, Case{"min_p_1", {.min_p = 1}},
        Case{"top_k_top_p", {.top_k = 20, .top_p = 0.7}},
        Case{"top_p_min_p", {.top_p = 0.95, .min_p = 0.05}},
        Case{"all_filters", {.temperature = 0.8, .top_k = 30, .top_p = 0.9, .min_p = 0.02}},
        Case{"repetition", {.temperature = 0.5, .repetition_penalty = 1.7}},
        Case{"repetition_below_1", {.temperature = 0.5, .repetition_penalty = 0.6}},
        Case{"presence", {.temperature = 0.5, .presence_penalty = 1.5}},
        Case{"frequency", {.greedy = true, .frequency_penalty = 0.7}, 301, 0.2f},
        Case{"bias", {.logit_bias = {{4, 9.f}, {9, -3.f}, {11, -kInfinity}}}},
        Case{"everything",
             {.temperature = 1.3,
              .top_k = 50,
              .top_p = 0.9,
              .min_p = 0.01,
              .repetition_penalty = 1.2,
              .presence_penalty = 0.4,
              .frequency_penalty = 0.2,
              .logit_bias = {{0, 2.f}, {300, 5.f}},
              .seed = 7}},
        Case{"one_token", {}, 1}, Case{"one_block", {.top_k = 3}, 64},
        Case{"large_vocabulary", {.temperature = 0.9}, 50304},
        Case{"large_vocabulary_filters", {.top_k = 40, .top_p = 0.95, .min_p = 0.05}, 50304},
        Case{"large_vocabulary_top_p", {.top_p = 0.9}, 50304}),
    [](const auto& param_info) { return param_info.param.name; });

TEST(Sampler, TiesGoToTheLowerId) {
  Logits logits(200, 0.f);
  logits[77] = logits[130] = logits[131] = 2.f;
  EXPECT_EQ(Sampler({.greedy = true}).sample(logits).token.id, 77);
  EXPECT_EQ(Sampler({.top_k = 1}).sample(logits).token.id, 77);
  EXPECT_EQ(Sampler({.top_p = 0.001}).sample(logits).token.id, 77);
  const Sampled sampled = Sampler({.greedy = true}).sample(logits, 4);
  ASSERT_EQ(sampled.top.size(), 4u);
  EXPECT_EQ(sampled.top[1].id, 130);
  EXPECT_EQ(sampled.top[2].id, 131);
  EXPECT_EQ(sampled.top[3].id, 0);
}

TEST(Sampler, ForbiddenTokensAreNeverDrawn) {
  Logits logits(130, -kInfinity);
  logits[129] = -1e30f;
  for (const SamplingOptions& o :
       {SamplingOptions{}, SamplingOptions{.greedy = true}, SamplingOptions{.top_k = 5},
        SamplingOptions{.top_p = 0.9}, SamplingOptions{.min_p = 0.1},
        SamplingOptions{.temperature = 100}}) {
    Sampler sampler(o);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(sampler.sample(logits).token.id, 129);
  }
}

// ---- the distribution of the draws --------------------------------------------------------------

// Pearson's statistic of `draws` draws against the slow version's probabilities.
double chi_squared(const SamplingOptions& options, const Logits& logits, int draws) {
  const std::vector<double> p = slow_distribution(logits, options, {});
  Sampler sampler(options);
  std::vector<int> counts(logits.size(), 0);
  for (int i = 0; i < draws; ++i) {
    ++counts[static_cast<std::size_t>(sampler.sample(logits, -1).token.id)];
  }
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) {
      EXPECT_EQ(counts[i], 0) << "token " << i;
    } else {
      const double expected = p[i] * draws;
      sum += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
  }
  return sum;
}

TEST(Sampler, FrequenciesFollowTheProbabilities) {
  const Logits logits = noise(10, 42, 0.5f);
  // With 9 degrees of freedom, one in a thousand exceeds 27.9. With fewer tokens, fewer do.
  EXPECT_LT(chi_squared({.seed = 1}, logits, 100000), 27.9);
  EXPECT_LT(chi_squared({.temperature = 0.7, .seed = 2}, logits, 100000), 27.9);
  EXPECT_LT(chi_squared({.top_k = 6, .seed = 3}, logits, 100000), 27.9);
  EXPECT_LT(chi_squared({.top_p = 0.8, .seed = 4}, logits, 100000), 27.9);
  EXPECT_LT(chi_squared({.min_p = 0.5, .seed = 5}, logits, 100000), 27.9);
}

TEST(Sampler, TheSameSeedDrawsTheSameTokensAndAnotherSeedOthers) {
  const auto draw = [](std::uint64_t seed) {
    Sampler sampler({.seed = seed});
    std::vector<std::int32_t> ids;
    for (std::uint32_t i = 0; i < 50; ++i) ids.push_back(sampler.sample(noise(500, i, 1)).token.id);
    return ids;
  };
  EXPECT_EQ(draw(11), draw(11));
  EXPECT_NE(draw(11), draw(12));
}

// ---- logprobs -----------------------------------------------------------------------------------

TEST(Sampler, LogprobsAreOfTheModelsOwnDistribution) {
  const Logits logits = noise(1000, 3);
  const std::vector<double> p = slow_distribution(logits, {}, {});
  const SamplingOptions options{.temperature = 0.5, .top_k = 3, .logit_bias = {{17, 30.f}}};
  const Sampled sampled = Sampler(options).sample(logits, 5);
  EXPECT_EQ(sampled.token.id, 17);  // because of its bias
  EXPECT_NEAR(sampled.token.logprob, std::log(p[17]), 1e-5);
  const auto order = order_of({logits.begin(), logits.end()});
  ASSERT_EQ(sampled.top.size(), 5u);
  for (std::size_t r = 0; r < 5; ++r) {
    EXPECT_EQ(sampled.top[r].id, static_cast<std::int32_t>(order[r]));
    EXPECT_NEAR(sampled.top[r].logprob, std::log(p[order[r]]), 1e-5);
  }
}

TEST(Sampler, LogprobsComeOnlyWhereAskedFor) {
  const Logits logits = noise(100, 3);
  EXPECT_EQ(Sampler({.greedy = true}).sample(logits, -1).token.logprob, 0.f);
  EXPECT_TRUE(Sampler({.greedy = true}).sample(logits, 0).top.empty());
  EXPECT_LT(Sampler({.greedy = true}).sample(logits, 0).token.logprob, 0.f);
  EXPECT_EQ(Sampler({.greedy = true}).sample(logits, 100).top.size(), 100u);
}

// ---- refusals -----------------------------------------------------------------------------------

TEST(Sampler, RefusesOptionsOutOfTheirRange) {
  const double nan = std::nan("");
  const std::vector<std::pair<SamplingOptions, std::string>> cases = {
      {{.temperature = -0.5}, "temperature is -0.5; it must be 0 (greedy) or a positive number"},
      {{.temperature = nan}, "temperature is nan; it must be 0 (greedy) or a positive number"},
      {{.top_k = -1}, "top_k is -1; it must be 0 (all tokens) or more"},
      {{.top_p = 0}, "top_p is 0; it must be above 0 and at most 1"},
      {{.top_p = 1.5}, "top_p is 1.5; it must be above 0 and at most 1"},
      {{.top_p = nan}, "top_p is nan; it must be above 0 and at most 1"},
      {{.min_p = -0.1}, "min_p is -0.1; it must be from 0 to 1"},
      {{.min_p = 1.1}, "min_p is 1.1; it must be from 0 to 1"},
      {{.repetition_penalty = 0}, "repetition_penalty is 0; it must be from 0.001 to 1000"},
      // A logit divided by it was infinite, and the model was blamed.
      {{.repetition_penalty = 1e-300},
       "repetition_penalty is 1e-300; it must be from 0.001 to 1000"},
      {{.presence_penalty = -1e300},
       "presence_penalty is -1e+300; it must be from -1000000 to 1000000"},
      {{.presence_penalty = nan}, "presence_penalty is nan; it must be from -1000000 to 1000000"},
      {{.frequency_penalty = nan}, "frequency_penalty is nan; it must be from -1000000 to 1000000"},
      {{.logit_bias = {{2, kInfinity}}},
       "the logit bias of token 2 is inf; it must be a finite number, or -inf to forbid the "
       "token"},
  };
  for (const auto& [options, text] : cases) {
    EXPECT_TRUE(refuses([&] { check(options, 100); }, text));
    EXPECT_TRUE(refuses([&] { Sampler sampler(options); }, text));
  }
  for (const std::int32_t id : {-1, 100}) {
    const SamplingOptions options{.logit_bias = {{id, 1.f}}};
    const std::string text =
        "logit_bias names token " + std::to_string(id) + "; the vocabulary has the tokens 0 to 99";
    EXPECT_TRUE(refuses([&] { check(options, 100); }, text));
    EXPECT_TRUE(refuses([&] { Sampler(options).sample(Logits(100)); }, text));
  }
}

TEST(Sampler, RefusesLogitsThatAreNoNumbers) {
  for (const std::size_t at : {std::size_t{0}, std::size_t{70}, std::size_t{199}}) {
    Logits logits = noise(200, 1);
    logits[at] = std::nanf("");
    const std::string text = "the logit of token " + std::to_string(at) +
                             " is nan: the model's numbers have left their range; try f32 or "
                             "bf16, or check the checkpoint";
    EXPECT_TRUE(refuses([&] { Sampler({}).sample(logits); }, text));
    EXPECT_TRUE(refuses([&] { Sampler({.greedy = true}).sample(logits, -1); }, text));
  }
  EXPECT_TRUE(refuses([&] { Sampler({}).sample(Logits(3, -kInfinity)); },
                      "every one of the 3 logits is -inf: no token is possible"));
  EXPECT_TRUE(refuses([&] { Sampler({}).sample({}); }, "sampling needs at least one logit"));
  EXPECT_TRUE(refuses([&] { Sampler({}).sample(Logits(3), 4); },
                      "top_logprobs is 4; it must be -1 (none) or from 0 to the vocabulary's 3"));
}

}  // namespace
}  // namespace tessera::test
