// A crowd of streams that begin, fork, grow, shrink and end at random, in a pool that is too small
// for them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/batch_runner.h"
#include "support/devices.h"
#include "tessera/error.h"

namespace tessera::test {
namespace {

class CacheCrowdTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, CacheCrowdTest, testing::ValuesIn(test_devices()), device_name);

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
      BatchStream& parent = any();
      streams_.push_back(
          std::make_unique<BatchStream>(BatchStream{parent.sequence.fork(), parent.ids}));
    } else if (what == 2) {
      end();
    } else if (what == 3) {
      BatchStream& stream = any();
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
  BatchStream& any() { return *streams_[static_cast<std::size_t>(below(std::ssize(streams_)))]; }
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
    BatchStream stream = runner_.stream(policies[below(6)], 60);
    const std::vector<std::int32_t> prompt = some_ids(below(30));
    const std::int64_t found = stream.sequence.find_prefix(prompt);
    stream.ids.assign(prompt.begin(), prompt.begin() + found);
    streams_.push_back(std::make_unique<BatchStream>(std::move(stream)));
  }
  void end() { streams_.erase(streams_.begin() + below(std::ssize(streams_))); }
  // A truncation is allowed only within the latest step of that stream.
  void shrink() {
    BatchStream& stream = any();
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
    std::vector<BatchPiece> pieces;
    std::int64_t needed = 0;
    for (const std::unique_ptr<BatchStream>& stream : streams_) {
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

  BatchRunner runner_;
  std::mt19937 random_;
  std::vector<std::unique_ptr<BatchStream>> streams_;
  std::int64_t refusals_ = 0;
};

TEST_P(CacheCrowdTest, RandomStreamsInATinyPoolSeeTheirOwnTokens) {
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
  // It was no easy life. A GPU has fewer actions, because each of them waits for it many times.
  EXPECT_GT(refusals, 10);
  EXPECT_GT(sum.hit_tokens, GetParam().is_cpu() ? 30 : 5);
  EXPECT_GT(sum.evictions, 30);
}

}  // namespace
}  // namespace tessera::test
