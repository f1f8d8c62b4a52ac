#include "read_bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "core/thread_pool.h"
#include "tessera/buffer.h"

namespace tessera::bench {
namespace {

constexpr int kRounds = 15;

template <typename Run>
double median_seconds(Run&& run) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  for (int round = -1; round < kRounds; ++round) {  // the first is a warm-up
    const Clock::time_point start = Clock::now();
    run();
    const std::chrono::duration<double> elapsed = Clock::now() - start;
    if (round >= 0) seconds.push_back(elapsed.count());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

double cpu_bandwidth(Context& ctx) {
  constexpr std::int64_t kBytes = std::int64_t{192} << 20, kChunk = 1 << 20;
  const Buffer buffer(kBytes);
  std::fill_n(static_cast<std::uint64_t*>(buffer.data()), kBytes / 8, 1u);
  std::vector<std::uint64_t> sums(kBytes / kChunk);
  const double seconds = median_seconds([&] {
    ctx.pool().parallel_for(kBytes / kChunk, [&](std::int64_t chunk, int) {
      const auto* from = static_cast<const std::uint64_t*>(buffer.data()) + chunk * kChunk / 8;
      std::uint64_t sum = 0;
      for (std::int64_t i = 0; i < kChunk / 8; ++i) sum += from[i];
      sums[static_cast<std::size_t>(chunk)] = sum;
    });
  });
  return static_cast<double>(kBytes) / seconds;
}

double gpu_bandwidth(Context& ctx) {
  constexpr std::int64_t kBytes = std::int64_t{1} << 30;
  constexpr int kCopies = 4;  // in one round, so that the start of the first hardly counts
  const Buffer from(kBytes, ctx.device()), to(kBytes, ctx.device());
  const double seconds = median_seconds([&] {
    for (int i = 0; i < kCopies; ++i) {
      copy_bytes(ctx, to.data(), to.device(), from.data(), from.device(), kBytes);
    }
    ctx.synchronize();
  });
  return 2.0 * kCopies * static_cast<double>(kBytes) / seconds;
}

}  // namespace

double read_bandwidth(Context& ctx) {
  return ctx.device().is_cpu() ? cpu_bandwidth(ctx) : gpu_bandwidth(ctx);
}

}  // namespace tessera::bench
