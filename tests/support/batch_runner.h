// Steps of many sequences, run as a model would run them, and checked: what every query sees
// through the page tables is compared with a plain list of the tokens of each stream. Every token
// leaves a mark in its slot that depends on all tokens before it, so that a wrong page, a missing
// copy or a wrong prefix shows.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "support/cache_stream.h"
#include "tessera/buffer.h"
#include "tessera/cache_batch.h"
#include "tessera/page_pool.h"

namespace tessera::test {

// A stream and what it should hold.
struct BatchStream {
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

struct BatchPiece {
  BatchStream* stream;
  std::vector<std::int32_t> ids;
  std::int64_t logit_rows = 0;
};

// Runs steps as a model would, and checks them.
class BatchRunner {
 public:
  BatchRunner(Context& ctx, const PagePoolOptions& options, const CacheBatchLimits& limits)
      : ctx_(ctx), pool_(ctx, options), batch_(ctx, pool_, limits) {}

  PagePool& pool() { return pool_; }
  BatchStream stream(const CachePolicy& policy, std::int64_t max_tokens = 200) {
    return {CacheSequence(pool_, policy, max_tokens, 40)};
  }

  const CacheStep& step(const std::vector<BatchPiece>& pieces) {
    std::vector<CacheBatch::Part> parts;
    for (const BatchPiece& piece : pieces) {
      parts.push_back({&piece.stream->sequence, piece.ids, piece.logit_rows});
    }
    const CacheStep& step = batch_.step(ctx_, parts);
    for (const BatchPiece& piece : pieces) {
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
    const BatchStream* stream;
    std::int64_t token;
  };

  void write_marks(const CacheStep& step, const std::vector<BatchPiece>& pieces) {
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

  void check(const CacheStep& step, const std::vector<BatchPiece>& pieces) {
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

  void check_logits(const CacheStep& step, const std::vector<BatchPiece>& pieces) {
    std::int64_t total = 0;
    for (const BatchPiece& piece : pieces) total += piece.logit_rows;
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

  // Checks that each query sees what its policy says, through table, hole and mask, in keys and
  // values.
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

inline PagePoolOptions tiny_pool(std::int64_t pages, std::int64_t page_size,
                                 bool prefix_cache = true) {
  return {.layers = 2,
          .kv_heads = 1,
          .head_dim = 2,
          .pages = pages,
          .page_size = page_size,
          .prefix_cache = prefix_cache};
}

}  // namespace tessera::test
