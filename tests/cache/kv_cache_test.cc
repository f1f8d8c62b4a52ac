// Which tokens a cache keeps, and where. The tests compare it with a list from which tokens are
// erased.
#include "tessera/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cache/stream_layout.h"
#include "support/cache_stream.h"
#include "support/devices.h"
#include "support/refusal.h"

namespace tessera::test {
namespace {

class KvCacheTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, KvCacheTest, testing::ValuesIn(test_devices()), device_name);

KvCacheOptions small(const CachePolicy& policy, std::int64_t page_size, std::int64_t max_step,
                     std::int64_t max_tokens = 0) {
  return {.layers = 2,
          .kv_heads = 1,
          .head_dim = 4,
          .policy = policy,
          .max_tokens = max_tokens,
          .max_step = max_step,
          .page_size = page_size};
}

std::vector<std::int32_t> some_ids(std::int64_t n) {
  return std::vector<std::int32_t>(static_cast<std::size_t>(n), 7);
}

// Remembers which token each slot holds, and checks a step against the model of the policy.
class Follower {
 public:
  Follower(Context& ctx, KvCache& cache)
      : ctx_(ctx), cache_(cache), kept_(cache.options().policy) {}

  void step(std::int64_t tokens) {
    const std::int64_t first = cache_.seen();
    const CachePolicy& policy = cache_.options().policy;
    EXPECT_EQ(cache_.kept(), kept_before_next());
    const CacheStep& step = cache_.step(ctx_, some_ids(tokens));
    ASSERT_EQ(step.tokens, tokens);
    ASSERT_EQ(step.groups.size(), 1u);
    const AttentionGroup& group = step.groups[0];
    ASSERT_EQ(group.rows, tokens);
    const std::vector<std::int64_t> slots = numbers_of(ctx_, step.slots);
    const std::vector<std::int64_t> positions = numbers_of(ctx_, step.positions);
    for (std::int64_t i = 0; i < tokens; ++i) holds_[slots[i]] = first + i;
    EXPECT_EQ(group.rope_on_read, policy.kind == CachePolicy::Kind::sinks);
    EXPECT_EQ(group.pages.lengths.shape[0], group.sequences);
    const std::int64_t queries = tokens / group.sequences;
    std::int64_t longest = 0;
    for (std::int64_t b = 0; b < group.sequences; ++b) {
      const std::vector<std::int64_t> keys = slots_of(ctx_, group, b, cache_.options().page_size);
      longest = std::max(longest, std::ssize(keys));
      for (std::int64_t i = 0; i < queries; ++i) {
        kept_.add();
        const std::int64_t t = first + b * queries + i;
        EXPECT_EQ(seen_by(group.mask, keys, i, queries), kept_.tokens()) << "token " << t;
        const bool in_cache = policy.kind == CachePolicy::Kind::sinks;
        EXPECT_EQ(positions[t - first], in_cache ? std::ssize(kept_.tokens()) - 1 : t);
      }
    }
    EXPECT_EQ(group.max_keys, longest);
  }

 private:
  std::int64_t kept_before_next() const {
    KeptTokens next = kept_;
    next.add();
    return std::ssize(next.tokens()) - 1;
  }
  // The tokens that query i of a sequence sees through the mask.
  std::vector<std::int64_t> seen_by(const Mask& mask, const std::vector<std::int64_t>& keys,
                                    std::int64_t i, std::int64_t queries) {
    std::vector<std::int64_t> result;
    const std::int64_t n_k = std::ssize(keys);
    for (std::int64_t j = 0; j < n_k; ++j) {
      if (mask.allows(i, i + n_k - queries, j)) result.push_back(holds_.at(keys[j]));
    }
    return result;
  }

  Context& ctx_;
  KvCache& cache_;
  KeptTokens kept_;
  std::map<std::int64_t, std::int64_t> holds_;  // slot -> token
};

void follow(Context& ctx, const KvCacheOptions& options, std::int64_t tokens, std::uint32_t seed) {
  SCOPED_TRACE(to_string(options.policy) + ", pages of " + std::to_string(options.page_size) +
               ", steps of up to " + std::to_string(options.max_step));
  KvCache cache(ctx, options);
  Follower follower(ctx, cache);
  std::mt19937 random(seed);
  while (cache.seen() < tokens) {
    const auto wanted = static_cast<std::int64_t>(random() % (options.max_step + 3) + 1);
    const std::int64_t size = cache.step_size(std::min(wanted, tokens - cache.seen()));
    ASSERT_GE(size, 1);
    ASSERT_LE(size, std::min(wanted, options.max_step));
    follower.step(size);
    ASSERT_FALSE(testing::Test::HasFailure());
  }
  EXPECT_EQ(cache.seen(), tokens);
}

TEST_P(KvCacheTest, KeepsExactlyWhatThePolicySays) {
  std::uint32_t seed = 1;
  for (std::int64_t page_size : {1, 3, 16, 64}) {
    for (std::int64_t max_step : {1, 7, 40}) {
      for (std::int64_t window : {1, 5, 30, 64, 101}) {
        follow(ctx(), small(CachePolicy::last(window), page_size, max_step), 333, seed++);
        for (std::int64_t n_sink : {0, 1, 3, 5}) {
          follow(ctx(), small(CachePolicy::sinks(n_sink, window), page_size, max_step), 333,
                 seed++);
        }
      }
      follow(ctx(), small(CachePolicy::full(), page_size, max_step, 200), 200, seed++);
    }
  }
}

TEST_P(KvCacheTest, NoStepSpansTheTokenAtWhichSinksBeginToRoll) {
  KvCache cache(ctx(), small(CachePolicy::sinks(4, 20), 8, 16));
  const auto sequences = [&](std::int64_t tokens) {
    return cache.step(ctx(), some_ids(tokens)).groups.at(0).sequences;
  };
  EXPECT_EQ(cache.step_size(100), 16);
  EXPECT_EQ(sequences(16), 1);
  EXPECT_EQ(cache.step_size(100), 8);
  EXPECT_TRUE(refuses([&] { sequences(9); },
                      "cache: a step of 9 tokens was asked for; the next one takes 1..8, as "
                      "step_size() says"));
  EXPECT_EQ(cache.seen(), 16);
  EXPECT_EQ(sequences(8), 1);
  EXPECT_EQ(cache.step_size(100), 16);
  EXPECT_EQ(sequences(5), 5);
  EXPECT_EQ(cache.step_size(0), 0);
}

TEST_P(KvCacheTest, FullCacheSaysItsLimit) {
  KvCache cache(ctx(), small(CachePolicy::full(), 16, 8, 20));
  EXPECT_EQ(cache.step_size(20), 8);
  cache.step(ctx(), some_ids(8));
  cache.step(ctx(), some_ids(8));
  const std::string text =
      "the cache holds at most 20 tokens: 16 are in it, and there is no room for 5 more; a cache "
      "with attention sinks or a window takes streams of any length";
  EXPECT_TRUE(refuses([&] { cache.step_size(5); }, text));
  EXPECT_TRUE(refuses([&] { cache.step(ctx(), some_ids(5)); }, text));
  EXPECT_EQ(cache.seen(), 16);  // nothing was lost
  cache.step(ctx(), some_ids(4));
  EXPECT_EQ(cache.kept(), 20);
  cache.clear();
  EXPECT_EQ(cache.seen(), 0);
  EXPECT_EQ(cache.step_size(20), 8);
}

// A GPU plans by the width: it has room for the keys there are, whatever may come later. Few widths
// are few plans.
TEST_P(KvCacheTest, ThePageTableGrowsWithTheStreamInFewWidths) {
  KvCache cache(ctx(), small(CachePolicy::full(), 4, 16, 4000));
  std::vector<std::int64_t> widths;
  while (cache.seen() < 4000) {
    const CacheStep& step = cache.step(ctx(), some_ids(16));
    const std::int64_t width = step.groups[0].pages.table.shape[1], pages = cache.seen() / 4;
    EXPECT_GE(width, pages);
    EXPECT_LE(width, std::max<std::int64_t>(8, 2 * pages));
    if (widths.empty() || widths.back() != width) widths.push_back(width);
  }
  const std::vector<std::int64_t> expected{8,   16,  24,  32,  48,  64,  96,
                                           128, 192, 256, 384, 512, 768, 1000};
  EXPECT_EQ(widths, expected);
}

TEST_P(KvCacheTest, AClearedCacheStartsANewStream) {
  KvCache cache(ctx(), small(CachePolicy::sinks(2, 9), 4, 8));
  for (int i = 0; i < 50; ++i) cache.step(ctx(), some_ids(cache.step_size(3)));
  cache.clear();
  Follower follower(ctx(), cache);
  for (int i = 0; i < 20; ++i) follower.step(cache.step_size(3));
}

TEST_P(KvCacheTest, MemoryIsFlatAndPagesAreUsedAgain) {
  const std::int64_t before = ctx().workspace_bytes();
  for (const CachePolicy& policy : {CachePolicy::last(100), CachePolicy::sinks(4, 100)}) {
    KvCache cache(ctx(), small(policy, 16, 8));
    // Sinks have a page of their own. The window and a step may begin anywhere in a page.
    const std::int64_t pages = (policy.n_sink > 0 ? 1 : 0) + (100 - 1 + 8 + 16 - 1 + 15) / 16;
    const std::int64_t bytes = 2 * 2 * pages * 16 * 4 * 4;
    EXPECT_EQ(cache.bytes(), bytes);
    std::map<std::int64_t, std::int64_t> uses;  // page -> uses
    const std::int64_t tokens = GetParam().is_cpu() ? 100000 : 2000;
    while (cache.seen() < tokens) {
      const CacheStep& step = cache.step(ctx(), some_ids(cache.step_size(5)));
      for (std::int64_t slot : numbers_of(ctx(), step.slots)) ++uses[slot / 16];
    }
    EXPECT_EQ(std::ssize(uses), pages);
    const std::int64_t even_share = tokens / pages;
    for (const auto& [page, count] : uses) {
      if (policy.n_sink > 0 && page == 0) {
        EXPECT_EQ(count, 4);
      } else {
        EXPECT_GE(count, even_share * 9 / 10) << page;
      }
    }
    EXPECT_EQ(cache.bytes(), bytes);
  }
  EXPECT_EQ(ctx().workspace_bytes(), before);
}

// A token far past 2^31 sees what a token does that is a whole number of pages nearer.
TEST(StreamLayoutTest, StreamsGoOnPastTheNumbersOf32Bits) {
  for (const CachePolicy& policy : {CachePolicy::last(100), CachePolicy::sinks(4, 100)}) {
    const StreamLayout layout(policy, 0, 8, 16);
    for (std::int64_t shift : {std::int64_t{1} << 31, std::int64_t{1} << 40}) {
      for (std::int64_t t = 200; t < 600; ++t) {
        const std::int64_t oldest = layout.oldest(t), late = layout.oldest(t + shift);
        EXPECT_EQ(layout.row(t + shift), layout.row(t));
        EXPECT_EQ(layout.line_page(t + shift), layout.line_page(t) + shift / 16);
        EXPECT_EQ(late, oldest + shift);
        EXPECT_EQ(layout.length(late, t + shift), layout.length(oldest, t));
        EXPECT_EQ(layout.hole_size(late, layout.line_page(late)),
                  layout.hole_size(oldest, layout.line_page(oldest)));
      }
    }
  }
}

TEST(StreamLayoutTest, EveryTokenLiesInOnePage) {
  for (std::int64_t n_sink : {0, 1, 4, 7, 8}) {
    const StreamLayout layout(CachePolicy::sinks(n_sink, 30), 0, 8, 4);
    std::int64_t t = 0;
    for (std::int64_t page = 0; t < 100; ++page) {
      ASSERT_EQ(layout.page_begin(page), t);
      for (; t < layout.page_end(page); ++t) EXPECT_EQ(layout.row(t), t - layout.page_begin(page));
    }
  }
}

TEST_P(KvCacheTest, PoolsAreApartAndInOrder) {
  KvCache cache(ctx(), small(CachePolicy::last(5), 3, 2));
  const Tensor k0 = cache.keys(0), v0 = cache.values(0), k1 = cache.keys(1), v1 = cache.values(1);
  EXPECT_EQ(to_string(k0), "f32[3, 3, 1, 4]");
  const auto end = [](const Tensor& t) { return t.ptr<char>() + t.bytes(); };
  EXPECT_LE(end(k0), v0.ptr<char>());
  EXPECT_LE(end(v0), k1.ptr<char>());
  EXPECT_LE(end(k1), v1.ptr<char>());
  EXPECT_EQ(end(v1) - k0.ptr<char>() <= cache.bytes(), true);
  EXPECT_EQ(k0.device, GetParam());
  EXPECT_TRUE(refuses([&] { cache.keys(2); }, "cache: there is no layer 2; the cache has 0..1"));
  EXPECT_TRUE(
      refuses([&] { cache.values(-1); }, "cache: there is no layer -1; the cache has 0..1"));
}

TEST_P(KvCacheTest, RefusesWrongOptions) {
  const KvCacheOptions good = small(CachePolicy::sinks(4, 100), 16, 8);
  const std::vector<Refusal<KvCacheOptions>> refusals{
      {[](auto& o) { o.layers = 0; },
       "cache: 0 layers of 1 key heads of 4 elements; each must be at least 1"},
      {[](auto& o) { o.dtype = DType::i32; },
       "cache: dtype is i32; accepted: f32, f16, bf16, f8e4m3, i8"},
      {[](auto& o) { o.page_size = 0; }, "cache: page_size is 0; it must be at least 1"},
      {[](auto& o) { o.max_step = 0; }, "cache: max_step is 0; it must be at least 1"},
      {[](auto& o) { o.policy.window = 0; }, "cache: window is 0; it must be at least 1"},
      {[](auto& o) { o.policy.n_sink = -1; }, "cache: -1 attention sinks; there must be 0 or more"},
      {[](auto& o) { o.policy = CachePolicy::full(); },
       "cache: max_tokens is 0; it must be at least 1"},
      {[](auto& o) { o.policy.window = std::int64_t{1} << 31; },
       "cache: 134217731 pages of 16 tokens are too many; a cache holds up to 2147483647 tokens"},
      {[](auto& o) { o.kv_heads = INT64_MAX / 2; },
       "size 4611686018427387903 x 4 does not fit into 64 bits", ErrorCode::overflow},
  };
  for (const auto& [spoil, text, code] : refusals) {
    KvCacheOptions options = good;
    spoil(options);
    EXPECT_TRUE(refuses([&] { KvCache(ctx(), options); }, text, code));
  }
  KvCache cache(ctx(), good);
  EXPECT_TRUE(refuses([&] { cache.step_size(-1); }, "cache: -1 tokens were asked for"));
  EXPECT_TRUE(refuses([&] { cache.step(ctx(), some_ids(0)); },
                      "cache: a step of 0 tokens was asked for; it must bring at least 1"));
}

TEST(CachePolicyTest, SaysItself) {
  EXPECT_EQ(to_string(CachePolicy::full()), "full");
  EXPECT_EQ(to_string(CachePolicy::last(1024)), "window(1024)");
  EXPECT_EQ(to_string(CachePolicy::sinks(4, 1020)), "sinks(4, 1020)");
}

}  // namespace
}  // namespace tessera::test
