#include "profile/ceilings.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <vector>

#include "core/thread_pool.h"
#include "cpu/simd/peak_rate.h"
#include "profile/timing.h"
#include "tessera/buffer.h"
#include "tessera/linear.h"

namespace tessera::profile {
namespace {

// The fastest round counts: a ceiling is the most that the device can do, and other load on the
// machine only hides it.
constexpr int kRounds = 15;
constexpr std::int64_t kMebi = 1 << 20, kLeastBlock = 1 << 14;

// Each thread has a part of the block. It reads a small part several times, so that the clock can
// measure it; the thread's own cache may hold it.
double cpu_bandwidth(Context& ctx, std::int64_t bytes) {
  const std::int64_t threads = ctx.threads(), words = bytes / 8 / threads;
  const Buffer buffer(8 * words * threads);
  auto* memory = static_cast<std::uint64_t*>(buffer.data());
  std::fill_n(memory, words * threads, 1u);
  const std::int64_t passes = std::max<std::int64_t>(1, 32 * kMebi / (8 * words * threads));
  std::atomic<std::uint64_t> sum = 0;
  const Timing timing = time_rounds(kRounds, [&] {
    ctx.pool().parallel_for(threads, [&](std::int64_t part, int) {
      for (std::int64_t pass = 0; pass < passes; ++pass) {
        sum += cpu::sum_memory(memory + part * words, words);
      }
    });
  });
  return static_cast<double>(8 * passes * words * threads) / timing.fastest;
}

double gpu_bandwidth(Context& ctx) {
  constexpr std::int64_t kBytes = std::int64_t{1} << 30;
  constexpr int kCopies = 4;  // in one round, so that the start of the first hardly counts
  const Buffer from(kBytes, ctx.device()), to(kBytes, ctx.device());
  const Timing timing = time_rounds(kRounds, [&] {
    for (int i = 0; i < kCopies; ++i) {
      copy_bytes(ctx, to.data(), to.device(), from.data(), from.device(), kBytes);
    }
    ctx.synchronize();
  });
  return 2.0 * kCopies * static_cast<double>(kBytes) / timing.fastest;
}

// `peak` runs on every thread at the same time.
template <typename Peak>
double cpu_rate(Context& ctx, Peak&& peak) {
  constexpr std::int64_t kLoopRounds = 40'000;
  std::atomic<double> flops = 0, result = 0;
  const Timing timing = time_rounds(kRounds, [&] {
    flops = 0;
    ctx.pool().parallel_for(ctx.threads(), [&](std::int64_t, int) {
      const cpu::PeakWork work = peak(kLoopRounds);
      flops.fetch_add(work.flops);
      result.fetch_add(work.result);
    });
  });
  return flops / timing.fastest;
}

// A product that is large enough for the library to reach what the units can do.
double gpu_rate(Context& ctx, DType dtype, std::int64_t size) {
  const Buffer x(dtype, {size, size}, ctx.device()), weight(dtype, {size, size}, ctx.device());
  const Buffer out(dtype, {size, size}, ctx.device());
  const auto view = [&](const Buffer& buffer) { return buffer.tensor(dtype, {size, size}); };
  const Timing timing = time_rounds(kRounds, [&] {
    linear(ctx, {.x = view(x), .weight = Weight::dense(view(weight)), .out = view(out)});
    ctx.synchronize();
  });
  const auto n = static_cast<double>(size);
  return 2 * n * n * n / timing.fastest;
}

}  // namespace

double Ceilings::rate_for(std::string_view kernel) const {
  if (kernel.starts_with("cpu")) return kernel == "cpu.tiles.int8" ? matrix_rate : f32_rate;
  return kernel.starts_with("cuda.plain") ? f32_rate : matrix_rate;
}

double Ceilings::floor_seconds(std::int64_t bytes, std::int64_t flops,
                               std::string_view kernel) const {
  const double reading = read_bandwidth > 0 ? static_cast<double>(bytes) / read_bandwidth : 0;
  const double rate = rate_for(kernel);
  const double computing = rate > 0 ? static_cast<double>(flops) / rate : 0;
  return std::max(reading, computing);
}

double measure_read_bandwidth(Context& ctx, std::int64_t bytes) {
  return ctx.device().is_cpu() ? cpu_bandwidth(ctx, std::max(bytes, kLeastBlock))
                               : gpu_bandwidth(ctx);
}

Ceilings measure_ceilings(Context& ctx, std::int64_t bytes) {
  const double bandwidth = measure_read_bandwidth(ctx, bytes);
  if (!ctx.device().is_cpu()) {
    return {.read_bandwidth = bandwidth,
            .f32_rate = gpu_rate(ctx, DType::f32, 4096),
            .matrix_rate = gpu_rate(ctx, DType::f16, 8192)};
  }
  const double f32 = cpu_rate(ctx, cpu::peak_fma);
  return {.read_bandwidth = bandwidth,
          .f32_rate = f32,
          .matrix_rate = std::max(f32, cpu_rate(ctx, cpu::peak_dot8))};
}

double Bandwidths::over(std::int64_t bytes) {
  const auto size = static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::clamp(bytes, kLeastBlock, kAllOfMemory))));
  const auto found = by_size_.find(size);
  if (found != by_size_.end()) return found->second;
  return by_size_[size] = measure_read_bandwidth(ctx_, size);
}

}  // namespace tessera::profile
