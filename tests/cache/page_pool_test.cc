// Pages and who holds them: counts, copies, what can be found again, and what is given up first.
#include "tessera/page_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include "cache/prefix_index.h"
#include "support/devices.h"
#include "support/refusal.h"
#include "tessera/buffer.h"
#include "tessera/cache_batch.h"

namespace tessera::test {
namespace {

class PagePoolTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, PagePoolTest, testing::ValuesIn(test_devices()), device_name);

PagePoolOptions pool_of(std::int64_t pages, bool prefix_cache = true) {
  return {.layers = 2,
          .kv_heads = 1,
          .head_dim = 4,
          .pages = pages,
          .page_size = 4,
          .prefix_cache = prefix_cache};
}

constexpr CacheBatchLimits kLimits{
    .max_tokens = 64, .max_sequences = 8, .max_pages_of_a_sequence = 16};

std::vector<std::int32_t> ids_from(std::int32_t first, std::int64_t n) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(n));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

// A pool with a batch over it.
struct Pool {
  Pool(Context& with, std::int64_t count, bool prefix_cache = true)
      : ctx(with), pages(with, pool_of(count, prefix_cache)), batch(with, pages, kLimits) {}

  CacheSequence sequence(const CachePolicy& policy = CachePolicy::full()) {
    return CacheSequence(pages, policy, 60, 64);
  }
  void append(CacheSequence& sequence, const std::vector<std::int32_t>& ids) {
    const CacheBatch::Part part{&sequence, ids, 1};
    batch.step(ctx, {&part, 1});
    batch.commit();
  }

  Context& ctx;
  PagePool pages;
  CacheBatch batch;
};

TEST_P(PagePoolTest, CountsHolders) {
  PagePool pool(ctx(), pool_of(3));
  EXPECT_EQ(pool.free_pages(), 3);
  const std::int32_t a = pool.take(), b = pool.take(), c = pool.take();
  EXPECT_EQ((std::set{a, b, c}), (std::set{0, 1, 2}));
  EXPECT_TRUE(refuses([&] { pool.take(); }, "all 3 pages of 4 tokens of the KV cache are in use",
                      ErrorCode::out_of_memory));
  pool.share(b);
  EXPECT_EQ(pool.holders(b), 2);
  pool.release(b);
  EXPECT_EQ(pool.used_pages(), 3);
  pool.release(b);
  EXPECT_EQ(pool.holders(b), 0);
  EXPECT_EQ(pool.used_pages(), 2);
  EXPECT_EQ(pool.free_pages(), 1);
  EXPECT_EQ(pool.take(), b);
  pool.release(c);
  pool.release(a);
  EXPECT_EQ(pool.take(), c);  // the one that was released first
  EXPECT_TRUE(refuses([&] { pool.release(a); }, "cache: page 0 was released, but nobody holds it"));
  EXPECT_TRUE(refuses([&] { pool.share(3); }, "cache: page 3 was never taken from the pool"));
}

TEST_P(PagePoolTest, CopiesAPageOfAllLayers) {
  PagePool pool(ctx(), pool_of(3));
  const std::int64_t page = 4 * 1 * 4;  // elements
  std::vector<float> values(static_cast<std::size_t>(3 * page));
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    for (const Tensor& tensor : {pool.keys(layer), pool.values(layer)}) {
      std::iota(values.begin(), values.end(), static_cast<float>(1000 * layer));
      copy_bytes(ctx(), tensor.data, tensor.device, values.data(), Device{}, tensor.bytes());
    }
  }
  pool.copy_page(ctx(), 2, 0);
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    for (const Tensor& tensor : {pool.keys(layer), pool.values(layer)}) {
      copy_bytes(ctx(), values.data(), Device{}, tensor.data, tensor.device, tensor.bytes());
      for (std::int64_t i = 0; i < 3 * page; ++i) {
        const std::int64_t from = i < page ? i + 2 * page : i;
        EXPECT_EQ(values[static_cast<std::size_t>(i)], static_cast<float>(1000 * layer + from));
      }
    }
  }
}

TEST_P(PagePoolTest, PagesOf8BitsHaveScalesThatAreCopiedWithThem) {
  EXPECT_FALSE(PagePool(ctx(), pool_of(3)).key_scales(0).defined());
  for (DType dtype : {DType::i8, DType::f8e4m3}) {
    PagePoolOptions options = pool_of(3);
    options.kv_heads = 2;
    options.dtype = dtype;
    PagePool pool(ctx(), options);
    // Of each layer: keys and values of 3 pages of 4 tokens of 2 heads of 4, and of f32 scales,
    // each on a boundary.
    const auto aligned = [](std::int64_t bytes) {
      return (bytes + Buffer::kAlignment - 1) / Buffer::kAlignment * Buffer::kAlignment;
    };
    EXPECT_EQ(pool.bytes(), 2 * 2 * (aligned(3 * 4 * 2 * 4) + aligned(3 * 4 * 2 * 4)));
    EXPECT_EQ(pool.bytes(), page_pool_bytes(options));
    const Tensor tensors[] = {pool.keys(0),       pool.values(0),      pool.keys(1),
                              pool.values(1),     pool.key_scales(0),  pool.value_scales(0),
                              pool.key_scales(1), pool.value_scales(1)};
    std::vector<unsigned char> bytes;
    for (unsigned i = 0; i < std::size(tensors); ++i) {
      bytes.resize(static_cast<std::size_t>(tensors[i].bytes()));
      std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(7 * i));
      copy_bytes(ctx(), tensors[i].data, pool.device(), bytes.data(), Device{}, std::ssize(bytes));
    }
    EXPECT_EQ(to_string(pool.key_scales(0)).substr(0, 12), "f32[3, 2, 4]");
    pool.copy_page(ctx(), 2, 0);
    for (unsigned i = 0; i < std::size(tensors); ++i) {
      bytes.resize(static_cast<std::size_t>(tensors[i].bytes()));
      copy_bytes(ctx(), bytes.data(), Device{}, tensors[i].data, pool.device(), std::ssize(bytes));
      const std::size_t page = bytes.size() / 3;
      for (std::size_t at = 0; at < bytes.size(); ++at) {
        const std::size_t from = at < page ? at + 2 * page : at;
        EXPECT_EQ(bytes[at], static_cast<unsigned char>(7 * i + from)) << i << " " << at;
      }
    }
  }
}

TEST_P(PagePoolTest, RefusesWrongOptions) {
  const std::vector<Refusal<PagePoolOptions>> refusals{
      {[](auto& o) { o.pages = 0; },
       "cache: 0 pages of 4 tokens; a pool needs at least one of each"},
      {[](auto& o) { o.pages = std::int64_t{1} << 30; },
       "cache: 1073741824 pages of 4 tokens are too many; a pool holds up to 2147483647 tokens"},
      {[](auto& o) { o.dtype = DType::i32; },
       "cache: dtype is i32; accepted: f32, f16, bf16, f8e4m3, i8"},
      {[](auto& o) { o.head_dim = 0; },
       "cache: 2 layers of 1 key heads of 0 elements; each must be at least 1"}};
  for (const auto& [spoil, text, code] : refusals) {
    PagePoolOptions options = pool_of(3);
    spoil(options);
    EXPECT_TRUE(refuses([&] { PagePool(ctx(), options); }, text, code));
  }
}

TEST_P(PagePoolTest, AForkSharesPagesUntilItWrites) {
  Pool pool(ctx(), 8);
  CacheSequence a = pool.sequence();
  pool.append(a, ids_from(0, 6));
  EXPECT_EQ(a.pages(), 2);
  CacheSequence b = a.fork();
  EXPECT_EQ(b.seen(), 6);
  EXPECT_EQ(b.pages(), 2);
  EXPECT_EQ(pool.pages.used_pages(), 2);
  EXPECT_EQ(b.pages_for(1), 1);  // a copy of the second page
  EXPECT_EQ(b.pages_for(3), 2);  // and a third
  pool.append(b, {50});
  EXPECT_EQ(pool.pages.used_pages(), 3);
  EXPECT_EQ(a.pages_for(1), 0);  // the second page is its own again
  pool.append(a, {60});
  EXPECT_EQ(pool.pages.used_pages(), 3);
  b = pool.sequence();
  EXPECT_EQ(pool.pages.used_pages(), 2);
  a.clear();
  EXPECT_EQ(pool.pages.used_pages(), 0);
}

TEST_P(PagePoolTest, OfTwoForksInOneStepOnlyOneCopies) {
  Pool pool(ctx(), 3);
  CacheSequence a = pool.sequence();
  pool.append(a, ids_from(0, 6));
  CacheSequence b = a.fork();
  const std::int32_t id = 9;
  const CacheBatch::Part parts[] = {{&a, {&id, 1}, 1}, {&b, {&id, 1}, 1}};
  pool.batch.step(ctx(), parts);  // fits into three pages
  EXPECT_EQ(pool.pages.used_pages(), 3);
}

TEST_P(PagePoolTest, FindsWholePagesAgain) {
  Pool pool(ctx(), 8);
  const std::vector<std::int32_t> prompt = ids_from(0, 11);
  {
    CacheSequence first = pool.sequence();
    EXPECT_EQ(first.find_prefix(prompt), 0);
    pool.append(first, prompt);
  }
  EXPECT_EQ(pool.pages.used_pages(), 0);
  EXPECT_EQ(pool.pages.free_pages(), 8);
  EXPECT_EQ(pool.pages.prefix_stats().pages, 2);
  const auto found = [&](std::vector<std::int32_t> ids,
                         const CachePolicy& policy = CachePolicy::full()) {
    CacheSequence sequence = pool.sequence(policy);
    const std::int64_t tokens = sequence.find_prefix(ids);
    EXPECT_EQ(sequence.seen(), tokens);
    EXPECT_EQ(sequence.pages(), tokens / 4);
    EXPECT_EQ(pool.pages.used_pages(), tokens / 4);
    return tokens;
  };
  EXPECT_EQ(found(prompt), 8);
  EXPECT_EQ(found(ids_from(0, 9)), 8);
  EXPECT_EQ(found(ids_from(0, 8)), 4);  // one token is left to compute
  EXPECT_EQ(found(ids_from(0, 4)), 0);
  EXPECT_EQ(found({}), 0);
  EXPECT_EQ(found({0, 1, 2, 3, 4, 5, 6, 99, 8, 9}), 4);
  EXPECT_EQ(found(ids_from(4, 9)), 0);  // the same page after other tokens is another page
  EXPECT_EQ(found(prompt, CachePolicy::last(40)), 0);
  EXPECT_EQ(found(prompt, CachePolicy::sinks(4, 40)), 0);
  const PrefixStats stats = pool.pages.prefix_stats();
  EXPECT_EQ(stats.lookups, 9 + 1);
  EXPECT_EQ(stats.hit_tokens, 8 + 8 + 4 + 4);
  EXPECT_EQ(stats.asked_tokens, 11 + 11 + 9 + 8 + 4 + 0 + 10 + 9 + 11 + 11);
  EXPECT_EQ(stats.evictions, 0);
  CacheSequence busy = pool.sequence();
  pool.append(busy, {1});
  EXPECT_TRUE(refuses([&] { busy.find_prefix(prompt); },
                      "cache: a prefix was asked for after 1 tokens; only an empty sequence can "
                      "begin with one"));
}

// Only pages from which nothing had left: the others depend on more than the tokens before them.
TEST_P(PagePoolTest, WindowsAndSinksAreFoundWhileNothingHasLeft) {
  for (const CachePolicy& policy : {CachePolicy::last(10), CachePolicy::sinks(2, 8)}) {
    Pool pool(ctx(), 12);
    const std::vector<std::int32_t> prompt = ids_from(0, 30);
    CacheSequence first = pool.sequence(policy), second = pool.sequence(policy);
    while (first.seen() < 30) {
      const std::int64_t n = first.step_size(30 - first.seen());
      const auto begin = prompt.begin() + first.seen();
      pool.append(first, {begin, begin + n});
    }
    // Tokens 0 to 9 fit. The sinks have a page of two tokens.
    const std::int64_t whole = policy.kind == CachePolicy::Kind::window ? 8 : 10;
    EXPECT_EQ(second.find_prefix(prompt), whole);
    EXPECT_EQ(second.kept(), std::min<std::int64_t>(whole, 9));
    // The sinks' page alone is no prefix.
    const std::int64_t used = pool.pages.used_pages();
    const std::vector<std::int32_t> other{0, 1, 2, 99, 98};
    CacheSequence third = pool.sequence(policy);
    EXPECT_EQ(third.find_prefix(other), 0);
    EXPECT_EQ(third.pages(), 0);
    EXPECT_EQ(pool.pages.used_pages(), used);
    pool.append(third, other);
    EXPECT_EQ(third.seen(), 5);
  }
}

TEST_P(PagePoolTest, TheOldestTailsAreGivenUpFirst) {
  Pool pool(ctx(), 6);
  const auto run = [&](std::int32_t first) {
    CacheSequence sequence = pool.sequence();
    pool.append(sequence, ids_from(first, 12));
  };
  const auto found = [&](std::int32_t first) {
    CacheSequence sequence = pool.sequence();
    return sequence.find_prefix(ids_from(first, 13));
  };
  run(0);
  run(100);
  EXPECT_EQ(pool.pages.prefix_stats().pages, 6);
  EXPECT_EQ(pool.pages.free_pages(), 6);
  EXPECT_EQ(found(0), 12);  // it is now the one that was used last
  CacheSequence busy = pool.sequence();
  pool.append(busy, ids_from(200, 1));
  EXPECT_EQ(pool.pages.prefix_stats().evictions, 1);
  EXPECT_EQ(found(100), 8);
  pool.append(busy, ids_from(201, 7));
  EXPECT_EQ(found(0), 8);  // found(100) was the later one
  EXPECT_EQ(found(100), 8);
  pool.append(busy, ids_from(208, 12));
  EXPECT_EQ(pool.pages.prefix_stats().evictions, 5);
  EXPECT_EQ(found(0), 0);
  EXPECT_EQ(found(100), 4);
}

TEST_P(PagePoolTest, AShorterStreamWritesBehindWhatItTookBack) {
  Pool pool(ctx(), 6);
  CacheSequence a = pool.sequence();
  pool.append(a, {1, 2, 3});
  pool.append(a, {4, 5, 6});  // the page 1 2 3 4 can be found
  a.truncate(3);
  EXPECT_EQ(a.seen(), 3);
  EXPECT_EQ(a.pages(), 1);
  CacheSequence b = pool.sequence();
  const std::vector<std::int32_t> prompt{1, 2, 3, 4, 5};
  EXPECT_EQ(b.find_prefix(prompt), 4);
  EXPECT_EQ(a.pages_for(1), 1);  // b sees the 4: a needs a page of its own
  b.clear();
  EXPECT_EQ(a.pages_for(1), 0);
  pool.append(a, {9});  // now the page is 1 2 3 9
  EXPECT_EQ(b.find_prefix(prompt), 0);
  EXPECT_EQ(b.find_prefix(std::vector<std::int32_t>{1, 2, 3, 9, 5}), 4);
  EXPECT_TRUE(refuses([&] { a.truncate(2); },
                      "cache: 2 tokens were asked to remain; the sequence can be taken back to "
                      "3..4"));
}

// A page that is written to again cannot be found by what it held, not even while it is not whole.
TEST_P(PagePoolTest, APageThatIsWrittenToIsForgotten) {
  Pool pool(ctx(), 6);
  CacheSequence a = pool.sequence(), b = pool.sequence();
  pool.append(a, {1, 2});
  pool.append(a, {3, 4, 5});
  a.truncate(2);
  EXPECT_EQ(pool.pages.prefix_stats().pages, 1);
  pool.append(a, {9});  // 1 2 9 and an old 4
  EXPECT_EQ(pool.pages.prefix_stats().pages, 0);
  EXPECT_EQ(b.find_prefix(std::vector<std::int32_t>{1, 2, 3, 4, 5}), 0);
}

TEST_P(PagePoolTest, WithoutPrefixCacheNothingIsFound) {
  Pool pool(ctx(), 6, /*prefix_cache=*/false);
  CacheSequence a = pool.sequence(), b = pool.sequence();
  pool.append(a, ids_from(0, 9));
  EXPECT_EQ(b.find_prefix(ids_from(0, 9)), 0);
  EXPECT_EQ(pool.pages.prefix_stats().lookups, 0);
}

// Equal hashes must not matter: with two pages there are two buckets for all these entries.
TEST(PrefixIndexTest, ComparesWhatItFinds) {
  PrefixIndex index(2, 3);
  const std::vector<std::int32_t> a{1, 2, 3}, b{1, 2, 4}, c{1, 2};
  const CachePolicy full = CachePolicy::full();
  const std::uint64_t first = index.add({full, PrefixIndex::kRoot, a}, 0);
  const std::uint64_t second = index.add({full, first, a}, 1);
  EXPECT_NE(first, second);
  EXPECT_EQ(index.find({full, PrefixIndex::kRoot, a}), 0);
  EXPECT_EQ(index.find({full, first, a}), 1);
  for (const auto& tokens : {b, c}) {
    EXPECT_EQ(index.find({full, PrefixIndex::kRoot, tokens}), -1);
    EXPECT_EQ(index.find({full, first, tokens}), -1);
  }
  EXPECT_EQ(index.find({full, second, a}), -1);
  EXPECT_EQ(index.find({CachePolicy::last(5), first, a}), -1);
  EXPECT_EQ(index.add({full, first, a}, 0), second);  // it is known: page 0 stays what it is
  EXPECT_EQ(index.find({full, PrefixIndex::kRoot, a}), 0);
  index.forget(0);
  EXPECT_EQ(index.find({full, PrefixIndex::kRoot, a}), -1);
  EXPECT_EQ(index.find({full, first, a}), 1);
  EXPECT_NE(index.add({full, PrefixIndex::kRoot, a}, 0), first);  // numbers are not used again
  EXPECT_EQ(index.size(), 2);
}

}  // namespace
}  // namespace tessera::test
