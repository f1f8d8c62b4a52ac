// Steps of many sequences: the order of their rows, what is refused, and what is taken back.
#include "tessera/cache_batch.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "support/batch_runner.h"
#include "support/devices.h"
#include "support/refusal.h"

namespace tessera::test {
namespace {

class CacheBatchTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, CacheBatchTest, testing::ValuesIn(test_devices()), device_name);

std::vector<std::int32_t> ids_of(std::int64_t n) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < n; ++i) ids.push_back(static_cast<std::int32_t>(3 + i % 7));
  return ids;
}

TEST_P(CacheBatchTest, StepsOfSingleTokensArePadded) {
  PagePool pool(ctx(), tiny_pool(200, 4));
  CacheBatch batch(
      ctx(), pool,
      {.max_tokens = 64, .max_sequences = 6, .max_pages_of_a_sequence = 60, .pads = true});
  std::vector<CacheSequence> sequences;
  for (int i = 0; i < 5; ++i) {
    sequences.emplace_back(pool, i == 2 ? CachePolicy::sinks(2, 9) : CachePolicy::full(), 100);
  }
  const std::vector<std::int32_t> one = ids_of(1);
  const auto step_of = [&](std::size_t count, std::int64_t logit_rows) -> const CacheStep& {
    std::vector<CacheBatch::Part> parts;
    for (std::size_t i = 0; i < count; ++i) parts.push_back({&sequences[i], one, logit_rows});
    return batch.step(ctx(), parts);
  };
  EXPECT_EQ(step_of(1, 1).tokens, 1);
  EXPECT_EQ(step_of(2, 0).tokens, 2);
  EXPECT_EQ(step_of(3, 0).tokens, 3);  // nobody wants logits
  EXPECT_EQ(step_of(5, 1).tokens, 6);  // no more than there can be sequences
  // Two full sequences, a row for nobody, the sinks.
  const CacheStep& step = step_of(3, 1);
  ASSERT_EQ(step.tokens, 4);
  EXPECT_EQ(step.logits, 4);
  ASSERT_EQ(step.groups.size(), 2u);
  EXPECT_EQ(step.groups[0].sequences, 3);
  EXPECT_EQ(numbers_of(ctx(), step.groups[0].pages.lengths), (std::vector<std::int64_t>{5, 4, 0}));
  EXPECT_EQ(numbers_of(ctx(), step.slots)[2], -1);
  EXPECT_EQ(step.logit_begin[2], 3);
  for (const CacheSequence& sequence : sequences) EXPECT_LE(sequence.pages(), 2);
}

TEST_P(CacheBatchTest, RowsThatNeedTheSameCallLieTogether) {
  BatchRunner runner(ctx(), tiny_pool(200, 4),
                     {.max_tokens = 256, .max_sequences = 16, .max_pages_of_a_sequence = 60});
  BatchStream full1 = runner.stream(CachePolicy::full()),
              full2 = runner.stream(CachePolicy::full()),
              window = runner.stream(CachePolicy::last(9)),
              sinks = runner.stream(CachePolicy::sinks(2, 9)),
              long1 = runner.stream(CachePolicy::full()),
              long2 = runner.stream(CachePolicy::full());
  runner.step(
      {{&full1, ids_of(13)}, {&full2, ids_of(5)}, {&window, ids_of(20)}, {&sinks, ids_of(11)}});
  {
    // Chunks, then single tokens, as they come: sorted, and single tokens of a window beside full.
    const CacheStep& step = runner.step({{&long1, ids_of(30), 1},
                                         {&window, ids_of(1), 1},
                                         {&sinks, ids_of(1), 1},
                                         {&full1, ids_of(1), 1},
                                         {&long2, ids_of(18), 1},
                                         {&full2, ids_of(4), 4}});
    ASSERT_EQ(step.groups.size(), 4u);
    EXPECT_EQ(step.groups[0].sequences, 2);  // window, full1
    EXPECT_EQ(step.groups[0].rows, 2);
    EXPECT_EQ(step.groups[1].rows, 4);  // full2: a few drafted tokens
    EXPECT_EQ(step.groups[2].rows, 1);  // sinks
    EXPECT_TRUE(step.groups[2].rope_on_read);
    EXPECT_EQ(step.groups[3].sequences, 2);
    EXPECT_TRUE(step.groups[3].q_offsets.defined());
    EXPECT_EQ(step.row_begin, (std::vector<std::int64_t>{7, 0, 6, 1, 37, 2}));
    EXPECT_EQ(step.few_rows, 7);
    EXPECT_EQ(step.logits, 9);
    EXPECT_EQ(step.few_logits, 9);
    EXPECT_EQ(step.first_logit_row, -1);
    EXPECT_EQ(step.groups[3].pages.table.shape[1], 8);  // 8 pages, in steps of 8
  }
  const CacheStep& decode = runner.step({{&long1, ids_of(1), 1},
                                         {&full1, ids_of(1), 1},
                                         {&window, ids_of(1), 1},
                                         {&full2, ids_of(1), 1}});
  EXPECT_EQ(decode.groups.size(), 1u);
  EXPECT_EQ(decode.groups[0].sequences, 4);
  EXPECT_FALSE(decode.groups[0].q_offsets.defined());
  EXPECT_TRUE(decode.wants_all_logits());
}

TEST_P(CacheBatchTest, ARefusedStepChangesNothing) {
  BatchRunner runner(ctx(), tiny_pool(4, 4),
                     {.max_tokens = 12, .max_sequences = 2, .max_pages_of_a_sequence = 3});
  BatchStream a = runner.stream(CachePolicy::full(), 11), b = runner.stream(CachePolicy::full()),
              c = runner.stream(CachePolicy::full());
  runner.step({{&a, ids_of(6)}, {&b, ids_of(5)}});
  const auto refused = [&](std::vector<CacheBatch::Part> parts, const std::string& text,
                           ErrorCode code = ErrorCode::invalid_argument) {
    CacheBatch batch(ctx(), runner.pool(),
                     {.max_tokens = 12, .max_sequences = 2, .max_pages_of_a_sequence = 3});
    EXPECT_TRUE(refuses([&] { batch.step(ctx(), parts); }, text, code));
    EXPECT_EQ(a.sequence.seen(), 6);
    EXPECT_EQ(b.sequence.seen(), 5);
    EXPECT_EQ(runner.pool().free_pages(), 0);
  };
  const std::vector<std::int32_t> one = ids_of(1), few = ids_of(3), many = ids_of(9);
  refused({{&a.sequence, few, 0}, {&b.sequence, one, 0}},
          "the step needs 1 more pages of 4 tokens, and 0 of the KV cache's 4 are free",
          ErrorCode::out_of_memory);
  refused(
      {{&b.sequence, one, 0}, {&a.sequence, ids_of(6), 0}},
      "the cache holds at most 11 tokens: 6 are in it, and there is no room for 6 more; a cache "
      "with attention sinks or a window takes streams of any length");
  refused({{&b.sequence, many, 0}},
          "cache: a sequence of 4 pages is in the step; this batch takes "
          "up to 3");
  refused({{&b.sequence, one, 0}, {&b.sequence, one, 0}},
          "cache: a sequence was given twice; all its tokens of a step belong in one part");
  refused(
      {{&a.sequence, one, 0}, {&b.sequence, one, 0}, {&c.sequence, one, 0}},
      "cache: a step of 3 tokens of 3 sequences was asked for; this batch takes 1..12 tokens of "
      "1..2 sequences");
  refused({},
          "cache: a step of 0 tokens of 0 sequences was asked for; this batch takes 1..12 "
          "tokens of 1..2 sequences");
  refused({{&a.sequence, one, 2}}, "cache: logits of 2 tokens were asked for in a step of 1");
  refused({{nullptr, one, 1}}, "cache: a part of a step must be a sequence of its pool");
  runner.step({{&a, ids_of(2)}, {&b, ids_of(3)}});  // what fits still runs
}

// Drafted tokens that were not accepted: the stream goes on as if they had never been there.
TEST_P(CacheBatchTest, TokensOfTheLatestStepCanBeTakenBack) {
  std::mt19937 random(5);
  for (const CachePolicy& policy : {CachePolicy::full(), CachePolicy::last(7),
                                    CachePolicy::sinks(3, 6), CachePolicy::sinks(0, 1)}) {
    BatchRunner runner(ctx(), tiny_pool(30, 4),
                       {.max_tokens = 16, .max_sequences = 2, .max_pages_of_a_sequence = 30});
    BatchStream stream = runner.stream(policy, 100);
    while (stream.sequence.seen() < 80) {
      const std::int64_t before = stream.sequence.seen();
      const std::int64_t n = stream.sequence.step_size(1 + static_cast<std::int64_t>(random() % 9));
      runner.step({{&stream, ids_of(n), n}});
      const std::int64_t keep = before + static_cast<std::int64_t>(random() % (n + 1));
      stream.sequence.truncate(keep);
      stream.ids.resize(static_cast<std::size_t>(keep));
      if (testing::Test::HasFailure()) return;
    }
    const std::int64_t held = stream.sequence.pages();
    EXPECT_EQ(runner.pool().used_pages(), held);
    EXPECT_LE(held, CacheSequence::max_pages(policy, 100, 40, 4));
  }
}

}  // namespace
}  // namespace tessera::test
