// Perplexity of a toy model whose probabilities are all known.
#include "tessera/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "support/refusal.h"
#include "support/toy_model.h"

namespace tessera::test {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::int64_t kScoredVocab = 50;

Ids random_text(std::size_t n) {
  std::mt19937 engine(5);
  Ids ids(n);
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(engine() % kScoredVocab);
  return ids;
}

struct Perplexity : testing::Test {
  Context ctx{{.threads = 2}};
  ToyModel model{kScoredVocab};

  // Appends the nlls of chunk[first..], each given the tokens before it in the chunk.
  void expect(std::vector<double>& nlls, const Ids& chunk, std::size_t first) const {
    for (std::size_t i = first; i < chunk.size(); ++i) {
      nlls.push_back(-model.logprob(i < 2 ? -1 : chunk[i - 2], chunk[i - 1], chunk[i]));
    }
  }
};

void expect_near(const PerplexityResult& result, const std::vector<double>& expected) {
  ASSERT_EQ(result.nlls.size(), expected.size());
  double sum = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(result.nlls[i], expected[i], 1e-5) << i;
    sum += expected[i];
  }
  EXPECT_EQ(result.tokens, static_cast<std::int64_t>(expected.size()));
  EXPECT_NEAR(result.nll, sum / static_cast<double>(expected.size()), 1e-6);
  EXPECT_NEAR(result.ppl, std::exp(result.nll), 1e-9);
  EXPECT_NEAR(result.ppl_error, result.ppl * result.nll_error, 1e-9);
}

TEST_F(Perplexity, ChunksStartAfreshAndLeaveTheirFirstTokenOut) {
  const Ids ids = random_text(50);
  std::vector<double> expected;
  for (std::size_t begin = 0; begin < 50; begin += 16) {
    expect(expected,
           Ids(ids.begin() + static_cast<std::ptrdiff_t>(begin),
               ids.begin() + static_cast<std::ptrdiff_t>(std::min(begin + 16, ids.size()))),
           1);
  }
  const PerplexityResult result = perplexity(ctx, model, ids, {.context = 16});
  expect_near(result, expected);
  EXPECT_EQ(result.chunks, 4);
  EXPECT_FALSE(result.cancelled);
}

TEST_F(Perplexity, OverlappingChunksScoreEveryTokenOnce) {
  const Ids ids = random_text(50);
  for (const std::int64_t stride : {1, 5, 15}) {
    std::vector<double> expected;
    expect(expected, ids, 1);  // the model looks two tokens back, so the text may stand for a chunk
    const PerplexityResult result = perplexity(ctx, model, ids, {.context = 16, .stride = stride});
    if (stride < 15) {
      expect_near(result, expected);
    } else {
      EXPECT_EQ(result.tokens, 49);
    }
  }
}

// A stride of 0 means as many tokens as the context, also with a bos token in each chunk.
TEST_F(Perplexity, AStrideOfTheContextIsTheDefault) {
  const Ids ids = random_text(50);
  for (const std::int64_t bos : {-1, 3}) {
    const PerplexityResult by_default = perplexity(ctx, model, ids, {.context = 16, .bos = bos});
    const PerplexityResult given =
        perplexity(ctx, model, ids, {.context = 16, .stride = 16, .bos = bos});
    EXPECT_EQ(given.nlls, by_default.nlls);
    EXPECT_EQ(given.positions, by_default.positions);
    EXPECT_EQ(given.chunks, by_default.chunks);
  }
}

TEST_F(Perplexity, PositionsAreIndicesOfTheText) {
  const Ids ids = random_text(10);
  using Positions = std::vector<std::int64_t>;
  EXPECT_EQ(perplexity(ctx, model, ids, {.context = 4}).positions,
            (Positions{1, 2, 3, 5, 6, 7, 9}));
  EXPECT_EQ(perplexity(ctx, model, ids, {.context = 4, .bos = 3}).positions,
            (Positions{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(perplexity(ctx, model, ids, {.context = 4, .stride = 2}).positions,
            (Positions{1, 2, 3, 4, 5, 6, 7, 8, 9}));
  KvCache cache = model.cache(ctx, CachePolicy::last(8), 100);
  EXPECT_EQ(stream_perplexity(ctx, model, cache, ids).positions,
            (Positions{1, 2, 3, 4, 5, 6, 7, 8, 9}));
  KvCache with_bos = model.cache(ctx, CachePolicy::last(8), 100);
  EXPECT_EQ(stream_perplexity(ctx, model, with_bos, ids, {.bos = 3}).positions,
            (Positions{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST_F(Perplexity, ABosTokenLeadsEachChunk) {
  const Ids ids = random_text(20);
  std::vector<double> expected;
  for (std::ptrdiff_t begin = 0; begin < 20; begin += 7) {
    Ids chunk = {3};
    chunk.insert(chunk.end(), ids.begin() + begin,
                 ids.begin() + std::min<std::ptrdiff_t>(begin + 7, 20));
    expect(expected, chunk, 1);
  }
  const PerplexityResult result = perplexity(ctx, model, ids, {.context = 8, .bos = 3});
  expect_near(result, expected);
  EXPECT_EQ(result.tokens, 20);
}

TEST_F(Perplexity, AStreamIsScoredWhateverTheCacheKeeps) {
  const Ids ids = random_text(100);
  std::vector<double> expected;
  expect(expected, ids, 1);
  for (const CachePolicy& policy :
       {CachePolicy::full(), CachePolicy::last(8), CachePolicy::sinks(2, 6)}) {
    KvCache cache = model.cache(ctx, policy, 100);
    expect_near(stream_perplexity(ctx, model, cache, ids), expected);
  }
}

TEST_F(Perplexity, TheTrainedLengthIsTheDefaultContext) {
  const Ids ids = random_text(130);  // the toy's max_positions is 64
  EXPECT_EQ(perplexity(ctx, model, ids).chunks, 3);
}

TEST_F(Perplexity, ReportsProgressAndEndsWhereCancelled) {
  const Ids ids = random_text(50);
  std::atomic<bool> cancel = false;
  std::int64_t last = 0;
  const PerplexityResult result = perplexity(ctx, model, ids,
                                             {.context = 16,
                                              .progress =
                                                  [&](std::int64_t done, std::int64_t total) {
                                                    EXPECT_GT(done, last);
                                                    EXPECT_EQ(total, 46);
                                                    last = done;
                                                    cancel = done >= 30;
                                                  },
                                              .cancel = &cancel});
  EXPECT_TRUE(result.cancelled);
  EXPECT_EQ(result.tokens, 30);
  EXPECT_GT(result.nll, 0);
}

TEST_F(Perplexity, RefusesWhatCannotBeScored) {
  const Ids ids = random_text(50);
  EXPECT_TRUE(refuses([&] { perplexity(ctx, model, Ids{1}); },
                      "the text has 1 token; perplexity needs at least 2"));
  EXPECT_TRUE(refuses(
      [&] {
        perplexity(ctx, model, Ids{1, 50});
      },
      "token 1 of the text is 50; the model's vocabulary has the tokens 0 to 49"));
  EXPECT_TRUE(refuses([&] { perplexity(ctx, model, ids, {.context = 1}); },
                      "a context of 1 tokens scores nothing; it must be 2 or more"));
  EXPECT_TRUE(refuses([&] { perplexity(ctx, model, ids, {.context = 8, .stride = 9}); },
                      "the stride is 9; it must be from 1 to 8, the context"));
}

// ---- the standard error -------------------------------------------------------------------------

TEST(BlockStandardError, IsThatOfTheMeanForIndependentValues) {
  std::mt19937 engine(7);
  std::vector<float> values(1 << 16);
  for (float& v : values) v = static_cast<float>(engine() >> 8) * 0x1p-24f;  // variance 1/12
  EXPECT_NEAR(block_standard_error(values), std::sqrt(1.0 / 12 / (1 << 16)), 1e-4);
}

TEST(BlockStandardError, SeesThatNeighboursAreAlike) {
  // Each value occurs 64 times in a row, so there are as many independent values as runs.
  std::mt19937 engine(8);
  std::vector<float> values;
  while (values.size() < (1 << 16)) {
    values.insert(values.end(), 64, static_cast<float>(engine() >> 8) * 0x1p-24f);
  }
  const double expected = std::sqrt(1.0 / 12 / (1 << 10));
  EXPECT_NEAR(block_standard_error(values), expected, 0.15 * expected);
}

TEST(BlockStandardError, OfFewValues) {
  EXPECT_EQ(block_standard_error({}), 0.0);
  EXPECT_EQ(block_standard_error(std::vector<float>{1.f}), 0.0);
  EXPECT_NEAR(block_standard_error(std::vector<float>{1.f, 3.f}), 1.0, 1e-9);
}

// ---- pairs and positions ------------------------------------------------------------------------

PerplexityResult scored(std::vector<std::int64_t> positions, std::vector<float> nlls) {
  PerplexityResult result;
  result.positions = std::move(positions);
  result.nlls = std::move(nlls);
  return result;
}

TEST(PairedDifferences, AreOfTheTokensThatBothHaveScored) {
  const PairedDifferences pairs = paired_differences(scored({1, 2, 4, 5, 9}, {1, 2, 3, 4, 5}),
                                                     scored({0, 2, 3, 4, 5}, {9, 1, 9, 1, 1}));
  EXPECT_EQ(pairs.positions, (std::vector<std::int64_t>{2, 4, 5}));
  EXPECT_EQ(pairs.values, (std::vector<float>{1, 2, 3}));
  EXPECT_NEAR(pairs.mean, 2.0, 1e-9);
  EXPECT_NEAR(pairs.error, std::sqrt(1.0 / 3), 1e-6);
  EXPECT_EQ(paired_differences(scored({1}, {1}), scored({2}, {1})).values.size(), 0u);
}

// The nlls of two settings swing together, so their difference is known far better than either.
TEST(PairedDifferences, AreKnownBetterThanTheMeans) {
  std::mt19937 engine(9);
  PerplexityResult base, other;
  for (std::int64_t i = 0; i < 1 << 13; ++i) {
    const float text = static_cast<float>(engine() >> 8) * 0x1p-22f;  // 0 to 4
    const float noise = static_cast<float>(engine() >> 8) * 0x1p-28f;
    base.positions.push_back(i);
    base.nlls.push_back(text);
    other.positions.push_back(i);
    other.nlls.push_back(text + 0.25f + noise);
  }
  const PairedDifferences pairs = paired_differences(other, base);
  EXPECT_NEAR(pairs.mean, 0.25 + 0x1p-5, 1e-3);
  EXPECT_GT(pairs.error, 0.0);
  EXPECT_LT(pairs.error, block_standard_error(base.nlls) / 20);
}

TEST(ByPosition, MeansOfBuckets) {
  const std::vector<std::int64_t> positions = {1, 2, 3, 4, 20, 21};
  const std::vector<float> values = {1, 2, 3, 8, 5, 7};
  const std::vector<PositionBucket> buckets = by_position(positions, values, 4);
  ASSERT_EQ(buckets.size(), 3u);
  EXPECT_EQ(buckets[0].begin, 0);
  EXPECT_EQ(buckets[0].end, 4);
  EXPECT_EQ(buckets[0].tokens, 3);
  EXPECT_NEAR(buckets[0].mean, 2.0, 1e-9);
  EXPECT_EQ(buckets[1].begin, 4);
  EXPECT_EQ(buckets[1].tokens, 1);
  EXPECT_EQ(buckets[1].error, 0.0);
  EXPECT_EQ(buckets[2].begin, 20);
  EXPECT_NEAR(buckets[2].mean, 6.0, 1e-9);
  EXPECT_NEAR(buckets[2].error, 1.0, 1e-9);
  EXPECT_TRUE(by_position({}, {}, 4).empty());
  EXPECT_TRUE(refuses([&] { by_position(positions, values, 0); },
                      "a bucket of 0 positions was asked for; it needs at least 1"));
}

}  // namespace
}  // namespace tessera::test
