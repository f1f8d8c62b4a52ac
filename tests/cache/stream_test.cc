// A million tokens through a cache of fixed size: memory and time per token stay the same.
#include <gtest/gtest.h>
#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "support/cache_stream.h"
#include "support/sanitizers.h"
#include "tessera/context.h"

namespace tessera::test {
namespace {

// Under a sanitizer code is slow, and its time means nothing.
constexpr std::int64_t kTokens = kSanitized ? 50'000 : 1'000'000;
constexpr bool kTimed = !kSanitized;
constexpr std::int64_t kEarly = 2'000;

// The CPU time of this thread. Other work on the machine does not count.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double time_tokens(AttentionStream& stream, std::int64_t tokens) {
  const double start = thread_seconds();
  for (std::int64_t i = 0; i < tokens; ++i) stream.run(1);
  return thread_seconds() - start;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

// The old stream's time per token divided by the young one's. Their blocks take turns, so that both
// see the same load on the machine.
double compare(AttentionStream& old_stream, AttentionStream& young) {
  constexpr int kBlocks = 41;
  constexpr std::int64_t kBlock = 250;
  std::vector<double> old_seconds, young_seconds;
  for (int i = 0; i < kBlocks; ++i) {
    old_seconds.push_back(time_tokens(old_stream, kBlock));
    young_seconds.push_back(time_tokens(young, kBlock));
  }
  return median(old_seconds) / median(young_seconds);
}

struct Memory {
  std::int64_t cache, workspace;
  std::size_t heap;

  Memory(Context& ctx, AttentionStream& stream)
      : cache(stream.cache().bytes()),
        workspace(ctx.workspace_bytes()),
        heap(mallinfo2().uordblks) {}
  friend bool operator==(const Memory&, const Memory&) = default;
};

class EndlessStream : public testing::TestWithParam<CachePolicy> {};
INSTANTIATE_TEST_SUITE_P(Policies, EndlessStream,
                         testing::Values(CachePolicy::sinks(4, 60), CachePolicy::last(64)),
                         [](const testing::TestParamInfo<CachePolicy>& policy) {
                           return policy.param.kind == CachePolicy::Kind::sinks ? "sinks"
                                                                                : "window";
                         });

TEST_P(EndlessStream, CostsTheSamePerTokenForAMillionTokens) {
  Context ctx({.threads = 1});
  const KvCacheOptions options{.policy = GetParam(), .max_step = 8, .page_size = 16};
  const StreamShape shape{.heads = 1, .kv_heads = 1};
  AttentionStream stream(ctx, shape, options), young(ctx, shape, options);
  for (AttentionStream* each : {&stream, &young}) {
    while (each->cache().seen() < kEarly) each->run(1);
  }
  for (const std::int64_t check : {kTokens / 10, kTokens}) {
    const Memory before(ctx, stream);
    while (stream.cache().seen() < check) stream.run(1);
    EXPECT_TRUE(Memory(ctx, stream) == before) << "after " << check << " tokens";
    EXPECT_EQ(stream.cache().kept(), 63);
    if (!kTimed) continue;
    double ratio = 0;
    // Other load on the machine may disturb one of them for longer than a median can hide.
    for (int attempt = 0; attempt < 3; ++attempt) {
      young.cache().clear();
      while (young.cache().seen() < kEarly) young.run(1);
      ratio = compare(stream, young);
      if (ratio > 0.95 && ratio < 1.05) break;
    }
    EXPECT_GT(ratio, 0.95) << "after " << check << " tokens";
    EXPECT_LT(ratio, 1.05) << "after " << check << " tokens";
    RecordProperty("ratio_after_" + std::to_string(check), std::to_string(ratio));
  }
}

}  // namespace
}  // namespace tessera::test
