// Attention over a cache: what the ops compute from a step's pages, positions and masks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "support/cache_stream.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/simd_targets.h"
#include "tessera/kv_cache.h"

namespace tessera::test {
namespace {

class CacheAttentionTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, CacheAttentionTest, testing::ValuesIn(test_devices()),
                         device_name);

// One row of [tokens, heads, dim].
Array token_of(const Array& out, std::int64_t i) {
  Array result({out.size(1), out.size(2)});
  const auto begin = out.data.begin() + i * result.numel();
  std::copy(begin, begin + result.numel(), result.data.begin());
  return result;
}

// Bounds for sums of some hundred f32 products.
constexpr double kRelative = 1e-5, kAbsolute = 5e-6;

void check_against_kept_tokens(Context& ctx, const StreamShape& shape,
                               const KvCacheOptions& options, std::int64_t tokens) {
  SCOPED_TRACE(to_string(options.policy) + ", pages of " + std::to_string(options.page_size));
  AttentionStream stream(ctx, shape, options);
  KeptTokens kept(options.policy);
  std::mt19937 random(7);
  while (stream.cache().seen() < tokens) {
    const std::int64_t first = stream.cache().seen();
    const auto wanted = static_cast<std::int64_t>(random() % options.max_step + 1);
    const Array out = stream.step(stream.cache().step_size(std::min(wanted, tokens - first)));
    for (std::int64_t i = 0; i < out.size(0); ++i) {
      kept.add();
      EXPECT_TRUE(close(token_of(out, i), attention_over(kept.tokens(), shape, stream.inv_freq()),
                        kRelative, kAbsolute))
          << "token " << first + i;
    }
    ASSERT_FALSE(testing::Test::HasFailure());
  }
}

// Before and after the stream rolls, attention equals a from-scratch computation over the kept
// tokens, with positions 0 .. n - 1. A window's keys are rotated by their position in the stream.
// The result is the same, because only distances count.
TEST_P(CacheAttentionTest, IsARecomputationOverTheKeptTokens) {
  for (const CachePolicy& policy :
       {CachePolicy::sinks(0, 7), CachePolicy::sinks(1, 30), CachePolicy::sinks(4, 45),
        CachePolicy::sinks(5, 1), CachePolicy::last(1), CachePolicy::last(33)}) {
    for (std::int64_t page_size : {3, 16}) {
      check_against_kept_tokens(ctx(), {},
                                {.policy = policy, .max_step = 11, .page_size = page_size}, 130);
    }
  }
  const StreamShape odd{
      .heads = 3, .kv_heads = 1, .dim = 20, .rope_dims = 6, .style = RopeStyle::interleaved};
  check_against_kept_tokens(
      ctx(), odd, {.policy = CachePolicy::sinks(3, 29), .max_step = 40, .page_size = 8}, 130);
  check_against_kept_tokens(
      ctx(), odd, {.policy = CachePolicy::full(), .max_tokens = 130, .max_step = 40}, 130);
}

// While everything fits, sinks and a full cache give the same bits. Keys that are rotated as they
// are read equal the keys that a full cache stores.
TEST_P(CacheAttentionTest, SinksAreAFullCacheWhileTheStreamFits) {
  for (std::int64_t target : simd_targets()) {
    SCOPED_TRACE(simd_target_name(target));
    const ForceSimdTarget force(target);
    for (RopeStyle style : {RopeStyle::half_split, RopeStyle::interleaved}) {
      for (const StreamShape& shape :
           {StreamShape{.dim = 16, .rope_dims = 16, .style = style},
            StreamShape{.dim = 64, .rope_dims = 16, .style = style},
            StreamShape{.heads = 2, .dim = 64, .rope_dims = 64, .style = style},
            StreamShape{.dim = 40, .rope_dims = 22, .style = style}}) {
        KvCacheOptions options{
            .policy = CachePolicy::full(), .max_tokens = 203, .max_step = 50, .page_size = 16};
        AttentionStream full(ctx(), shape, options);
        options.policy = CachePolicy::sinks(5, 198);
        AttentionStream sinks(ctx(), shape, options);
        std::mt19937 random(3);
        while (full.cache().seen() < 203) {
          // Single tokens, as in decoding, and prompts.
          const auto wanted = static_cast<std::int64_t>(random() % 3 == 0 ? 1 : random() % 50 + 1);
          const std::int64_t left = 203 - full.cache().seen();
          const std::int64_t size = full.cache().step_size(std::min(wanted, left));
          ASSERT_EQ(sinks.cache().step_size(std::min(wanted, left)), size);
          EXPECT_TRUE(identical(sinks.step(size), full.step(size)))
              << "dim " << shape.dim << ", after " << full.cache().seen() << " tokens";
        }
      }
    }
    if (!GetParam().is_cpu()) break;  // only the CPU has SIMD targets
  }
}

// The sizes of the steps only change the order in which a kernel sums.
TEST_P(CacheAttentionTest, StepSizesDoNotMatter) {
  const KvCacheOptions options{.policy = CachePolicy::sinks(4, 37), .max_step = 29, .page_size = 8};
  AttentionStream one(ctx(), {}, options), many(ctx(), {}, options);
  while (many.cache().seen() < 120) {
    const std::int64_t size = many.cache().step_size(29);
    const Array together = many.step(size);
    for (std::int64_t i = 0; i < size; ++i) {
      EXPECT_TRUE(close(
          one.step(1),
          [&] {
            Array row = token_of(together, i);
            row.shape.insert(row.shape.begin(), 1);
            return row;
          }(),
          kRelative, kAbsolute));
    }
  }
}

}  // namespace
}  // namespace tessera::test
