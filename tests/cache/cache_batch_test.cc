// Steps of many sequences: what every query sees through the page tables, compared with a plain
// list of the tokens of each stream. Every token leaves a mark in its slot that depends on all
// tokens before it, so that a wrong page, a missing copy or a wrong prefix shows.
#include "tessera/cache_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "support/cache_stream.h"
#include "support/devices.h"
#include "support/refusal.h"
#include "tessera/buffer.h"
#include "tessera/page_pool.h"

namespace tessera::test {
namespace {

class CacheBatchTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, CacheBatchTest, testing::ValuesIn(test_devices()), device_name);

// A stream and what it should hold.
struct Stream {
  CacheSequence sequence;
  std::vector<std::int32_t> ids{};

  // The mark of token t: of all ids up to it.
  float mark(std::int64_t t) const {
    std::uint32_t hash = 17;
    for (std::int64_t i = 0; i <= t; ++i) {
      hash =
          (hash ^ static_cast<std::uint32_t>(ids[static_cast<std::size_t>(i)] + 1)) * 2654435761u;
    }
    return static_cast<float>(hash >> 9);
  }
  // The marks that token t sees, its own included.
  std::vector<float> seen_by(std::int64_t t) const {
    KeptTokens kept(sequence.policy());
    for (std::int64_t i = 0; i <= t; ++i) kept.add();
    std::vector<float> marks;
    for (const std::int64_t token : kept.tokens()) marks.push_back(mark(token));
    return marks;
  }
};

struct Piece {
  Stream* stream;
  std::vector<std::int32_t> ids;
  std::int64_t logit_rows = 0;
};

// Runs steps as a model would, and checks them.
class Runner {
 public:
  Runner(Context& ctx, const PagePoolOptions& options, const CacheBatchLimits& limits)
      : ctx_(ctx), pool_(ctx, options), batch_(ctx, pool_, limits) {}

  PagePool& pool() { return pool_; }
  Stream stream(const CachePolicy& policy, std::int64_t max_tokens = 200) {
    return {CacheSequence(pool_, policy, max_tokens, 40)};
  }

  const CacheStep& step(const std::vector<Piece>& pieces) {
    std::vector<CacheBatch::Part> parts;
    for (const Piece& piece : pieces) {
      parts.push_back({&piece.stream->sequence, piece.ids, piece.logit_rows});
    }
    const CacheStep& step = batch_.step(ctx_, parts);
    for (const Piece& piece : pieces) {
      piece.stream->ids.insert(piece.stream->ids.end(), piece.ids.begin(), piece.ids.end());
    }
    write_marks(step, pieces);
    batch_.commit();
    check(step, pieces);
    return step;
  }

 private:
  // A row of a step: a stream, and which of its tokens.
  struct Row {
    const Stream* stream;
    std::int64_t token;
  };

  void write_marks(const CacheStep& step, const std::vector<Piece>& pieces) {
    rows_.assign(static_cast<std::size_t>(step.tokens), {});
    ASSERT_EQ(step.row_begin.size(), pieces.size());
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      const std::int64_t n = std::ssize(pieces[p].ids);
      const std::int64_t first = std::ssize(pieces[p].stream->ids) - n;
      for (std::int64_t i = 0; i < n; ++i) {
        rows_[static_cast<std::size_t>(step.row_begin[p] + i)] = {pieces[p].stream, first + i};
      }
    }
    const std::vector<std::int64_t> slots = numbers_of(ctx_, step.slots);
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      const float mark = rows_[r].stream->mark(rows_[r].token);
      for (const Tensor& tensor : {pool_.keys(0), pool_.values(1)}) {
        copy_bytes(ctx_, tensor.ptr<float>() + slots[r] * 2, tensor.device, &mark, Device{}, 4);
      }
    }
  }

  void check(const CacheStep& step, const std::vector<Piece>& pieces) {
    const std::vector<std::int64_t> ids = numbers_of(ctx_, step.ids);
    const std::vector<std::int64_t> positions = numbers_of(ctx_, step.positions);
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      const auto& [stream, token] = rows_[r];
      ASSERT_NE(stream, nullptr);
      EXPECT_EQ(ids[r], stream->ids[static_cast<std::size_t>(token)]);
      const bool sinks = stream->sequence.policy().kind == CachePolicy::Kind::sinks;
      EXPECT_EQ(positions[r], sinks ? std::ssize(stream->seen_by(token)) - 1 : token);
    }
    read_pool();
    check_groups(step.groups, rows_);
    check_logits(step, pieces);
  }

  void check_logits(const CacheStep& step, const std::vector<Piece>& pieces) {
    std::int64_t total = 0;
    for (const Piece& piece : pieces) total += piece.logit_rows;
    ASSERT_EQ(step.logits, total);
    if (total == 0 || step.wants_all_logits()) {
      EXPECT_TRUE(step.logit_groups.empty());
      if (total > 0) {
        EXPECT_EQ(step.logit_begin, step.row_begin);
      }
      return;
    }
    std::vector<std::int64_t> numbers;
    if (step.first_logit_row < 0) {
      numbers = numbers_of(ctx_, step.logit_rows);
    } else {
      for (std::int64_t i = 0; i < total; ++i) numbers.push_back(step.first_logit_row + i);
    }
    std::vector<Row> rows;
    for (const std::int64_t row : numbers) rows.push_back(rows_[static_cast<std::size_t>(row)]);
    std::int64_t few = 0;
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      const std::int64_t n = pieces[p].logit_rows, end = std::ssize(pieces[p].stream->ids);
      if (n <= CacheBatch::kFewTokens) few += n;
      if (n == 0) {
        EXPECT_EQ(step.logit_begin[p], -1);
      }
      for (std::int64_t i = 0; i < n; ++i) {
        const Row& row = rows[static_cast<std::size_t>(step.logit_begin[p] + i)];
        EXPECT_EQ(row.stream, pieces[p].stream);
        EXPECT_EQ(row.token, end - n + i);
      }
    }
    EXPECT_EQ(step.few_logits, few);
    check_groups(step.logit_groups, rows);
  }

  // That each query sees what its policy says, through table, hole and mask, in keys and values.
  void check_groups(const std::vector<AttentionGroup>& groups, const std::vector<Row>& rows) {
    std::int64_t row = 0;
    for (const AttentionGroup& group : groups) {
      ASSERT_EQ(group.first_row, row);
      std::vector<std::int64_t> offsets;
      if (group.q_offsets.defined()) offsets = numbers_of(ctx_, group.q_offsets);
      std::int64_t longest = 0;
      for (std::int64_t b = 0; b < group.sequences; ++b) {
        const auto at = static_cast<std::size_t>(b);
        const std::int64_t n =
            offsets.empty() ? group.rows / group.sequences : offsets[at + 1] - offsets[at];
        const std::vector<std::int64_t> keys = slots_of(ctx_, group, b, pool_.options().page_size);
        longest = std::max(longest, std::ssize(keys));
        for (std::int64_t i = 0; i < n; ++i, ++row) {
          const auto& [stream, token] = rows.at(static_cast<std::size_t>(row));
          const bool sinks = stream->sequence.policy().kind == CachePolicy::Kind::sinks;
          EXPECT_EQ(group.rope_on_read, sinks);
          EXPECT_EQ(seen_through(group.mask, keys, i, n), stream->seen_by(token))
              << to_string(stream->sequence.policy()) << ", token " << token;
        }
      }
      EXPECT_EQ(row, group.first_row + group.rows);
      EXPECT_EQ(group.max_keys, longest);
    }
    EXPECT_EQ(row, std::ssize(rows));
  }

  std::vector<float> seen_through(const Mask& mask, const std::vector<std::int64_t>& keys,
                                  std::int64_t query, std::int64_t queries) const {
    std::vector<float> marks;
    const std::int64_t n_k = std::ssize(keys);
    for (std::int64_t j = 0; j < n_k; ++j) {
      if (!mask.allows(query, query + n_k - queries, j)) continue;
      const auto at = static_cast<std::size_t>(keys[static_cast<std::size_t>(j)] * 2);
      EXPECT_EQ(keys_[at], values_[at]);
      marks.push_back(keys_[at]);
    }
    return marks;
  }

  void read_pool() {
    const Tensor keys = pool_.keys(0), values = pool_.values(1);
    keys_.resize(static_cast<std::size_t>(keys.numel()));
    values_.resize(keys_.size());
    copy_bytes(ctx_, keys_.data(), Device{}, keys.data, keys.device, keys.bytes());
    copy_bytes(ctx_, values_.data(), Device{}, values.data, values.device, values.bytes());
  }

  Context& ctx_;
  PagePool pool_;
  CacheBatch batch_;
  std::vector<Row> rows_;
  std::vector<float> keys_, values_;
};

PagePoolOptions tiny_pool(std::int64_t pages, std::int64_t page_size, bool prefix_cache = true) {
  return {.layers = 2,
          .kv_heads = 1,
          .head_dim = 2,
          .pages = pages,
          .page_size = page_size,
          .prefix_cache = prefix_cache};
}

// ---- random streams -----------------------------------------------------------------------------

// Streams begin, fork, grow, shrink and end at random in a pool that is too small for them.
class Crowd {
 public:
  Crowd(Context& ctx, std::int64_t page_size, std::uint32_t seed)
      : runner_(ctx, tiny_pool(24, page_size),
                {.max_tokens = 64, .max_sequences = 6, .max_pages_of_a_sequence = 40}),
        random_(seed) {}

  void act() {
    const std::uint32_t what = random_() % 16;
    if (streams_.empty() || (what == 0 && streams_.size() < 8)) {
      begin();
    } else if (what == 1 && streams_.size() < 8) {
      Stream& parent = any();
      streams_.push_back(std::make_unique<Stream>(Stream{parent.sequence.fork(), parent.ids}));
    } else if (what == 2) {
      end();
    } else if (what == 3) {
      Stream& stream = any();
      stream.sequence.clear();
      stream.ids.clear();
    } else if (what == 4) {
      shrink();
    } else {
      grow();
    }
    check_counts();
  }
  void finish() {
    streams_.clear();
    EXPECT_EQ(runner_.pool().used_pages(), 0);
    EXPECT_EQ(runner_.pool().free_pages(), 24);
  }
  std::int64_t refusals() const { return refusals_; }
  PrefixStats stats() { return runner_.pool().prefix_stats(); }

 private:
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint32_t>(n));
  }
  Stream& any() { return *streams_[static_cast<std::size_t>(below(std::ssize(streams_)))]; }
  // Two tokens, so that streams often begin alike.
  std::vector<std::int32_t> some_ids(std::int64_t n) {
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < n; ++i) ids.push_back(below(4) == 0 ? 1 : 0);
    return ids;
  }

  void begin() {
    const CachePolicy policies[] = {CachePolicy::full(),      CachePolicy::full(),
                                    CachePolicy::last(5),     CachePolicy::last(17),
                                    CachePolicy::sinks(2, 6), CachePolicy::sinks(5, 20)};
    Stream stream = runner_.stream(policies[below(6)], 60);
    const std::vector<std::int32_t> prompt = some_ids(below(30));
    const std::int64_t found = stream.sequence.find_prefix(prompt);
    stream.ids.assign(prompt.begin(), prompt.begin() + found);
    streams_.push_back(std::make_unique<Stream>(std::move(stream)));
  }
  void end() { streams_.erase(streams_.begin() + below(std::ssize(streams_))); }
  // A truncation is allowed only within the latest step of that stream.
  void shrink() {
    Stream& stream = any();
    const std::int64_t seen = stream.sequence.seen();
    for (std::int64_t n = seen - below(4); n <= seen; ++n) {
      try {
        stream.sequence.truncate(n);
        stream.ids.resize(static_cast<std::size_t>(n));
        return;
      } catch (const Error&) {
        EXPECT_EQ(stream.sequence.seen(), seen);
      }
    }
  }

  void grow() {
    std::vector<Piece> pieces;
    std::int64_t needed = 0;
    for (const std::unique_ptr<Stream>& stream : streams_) {
      if (pieces.size() == 6 || below(3) == 0 || !stream->sequence.has_room()) continue;
      const std::int64_t limit = below(2) == 0 ? 1 : 1 + below(10);
      const std::int64_t room = stream->sequence.policy().kind == CachePolicy::Kind::full
                                    ? 60 - stream->sequence.seen()
                                    : limit;
      const std::int64_t n = stream->sequence.step_size(std::min(limit, room));
      needed += stream->sequence.pages_for(n);
      pieces.push_back(
          {stream.get(), some_ids(n), below(2) == 0 ? std::min<std::int64_t>(n, 1) : below(n + 1)});
    }
    if (pieces.empty()) return;
    const std::vector<std::int64_t> before = state();
    try {
      runner_.step(pieces);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
      EXPECT_GT(needed, runner_.pool().free_pages());
      EXPECT_EQ(state(), before);
      ++refusals_;
      end();
    }
  }

  // What a refused step must not change.
  std::vector<std::int64_t> state() {
    std::vector<std::int64_t> numbers{runner_.pool().free_pages()};
    for (std::int32_t page = 0; page < 24; ++page) numbers.push_back(runner_.pool().holders(page));
    for (const auto& stream : streams_) {
      numbers.push_back(stream->sequence.seen());
      numbers.push_back(stream->sequence.pages());
      numbers.push_back(stream->sequence.pages_for(1));
    }
    return numbers;
  }

  void check_counts() {
    std::int64_t held = 0, counted = 0, used = 0;
    for (const auto& stream : streams_) {
      held += stream->sequence.pages();
      EXPECT_EQ(stream->sequence.seen(), std::ssize(stream->ids));
    }
    for (std::int32_t page = 0; page < 24; ++page) {
      counted += runner_.pool().holders(page);
      used += runner_.pool().holders(page) > 0 ? 1 : 0;
    }
    EXPECT_EQ(counted, held);
    EXPECT_EQ(runner_.pool().used_pages(), used);
    EXPECT_EQ(runner_.pool().free_pages(), 24 - used);
  }

  Runner runner_;
  std::mt19937 random_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::int64_t refusals_ = 0;
};

TEST_P(CacheBatchTest, RandomStreamsInATinyPoolSeeTheirOwnTokens) {
  std::int64_t refusals = 0;
  PrefixStats sum;
  for (const std::int64_t page_size : {1, 3, 4}) {
    for (std::uint32_t seed = 0; seed < 3; ++seed) {
      SCOPED_TRACE("pages of " + std::to_string(page_size) + ", seed " + std::to_string(seed));
      Crowd crowd(ctx(), page_size, seed);
      const int actions = GetParam().is_cpu() ? 400 : 60;
      for (int i = 0; i < actions; ++i) {
        crowd.act();
        ASSERT_FALSE(testing::Test::HasFailure()) << "after " << i << " actions";
      }
      crowd.finish();
      refusals += crowd.refusals();
      sum.hit_tokens += crowd.stats().hit_tokens;
      sum.evictions += crowd.stats().evictions;
    }
  }
  // It was no easy life.
  EXPECT_GT(refusals, 10);
  EXPECT_GT(sum.hit_tokens, 30);
  EXPECT_GT(sum.evictions, 30);
}

// ---- order and groups ---------------------------------------------------------------------------

std::vector<std::int32_t> ids_of(std::int64_t n) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < n; ++i) ids.push_back(static_cast<std::int32_t>(3 + i % 7));
  return ids;
}

TEST_P(CacheBatchTest, RowsThatNeedTheSameCallLieTogether) {
  Runner runner(ctx(), tiny_pool(200, 4),
                {.max_tokens = 256, .max_sequences = 16, .max_pages_of_a_sequence = 60});
  Stream full1 = runner.stream(CachePolicy::full()), full2 = runner.stream(CachePolicy::full()),
         window = runner.stream(CachePolicy::last(9)),
         sinks = runner.stream(CachePolicy::sinks(2, 9)),
         long1 = runner.stream(CachePolicy::full()), long2 = runner.stream(CachePolicy::full());
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
  Runner runner(ctx(), tiny_pool(4, 4),
                {.max_tokens = 12, .max_sequences = 2, .max_pages_of_a_sequence = 3});
  Stream a = runner.stream(CachePolicy::full(), 11), b = runner.stream(CachePolicy::full()),
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
    Runner runner(ctx(), tiny_pool(30, 4),
                  {.max_tokens = 16, .max_sequences = 2, .max_pages_of_a_sequence = 30});
    Stream stream = runner.stream(policy, 100);
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
