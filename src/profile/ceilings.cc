#include "profile/ceilings.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "core/thread_pool.h"
#include "cpu/simd/peak_rate.h"
#include "profile/timing.h"
#include "tessera/buffer.h"
#include "tessera/linear.h"

namespace tessera::profile {
namespace {

constexpr int kRounds = 15;
constexpr std::int64_t kMebi = 1 << 20;

double cpu_bandwidth(Context& ctx, std::int64_t bytes) {
  const std::int64_t chunk = std::max<std::int64_t>(bytes / (8 * ctx.threads()), 4096) / 8 * 8;
  const std::int64_t chunks = std::max<std::int64_t>(bytes / chunk, 1);
  const Buffer buffer(chunks * chunk);
  std::fill_n(static_cast<std::uint64_t*>(buffer.data()), chunks * chunk / 8, 1u);
  std::atomic<std::uint64_t> sum = 0;
  // Small blocks are read several times in a round, which a clock can then time.
  const std::int64_t passes = std::max<std::int64_t>(1, 32 * kMebi / (chunks * chunk));
  const Timing timing = time_rounds(kRounds, [&] {
    for (std::int64_t pass = 0; pass < passes; ++pass) {
      ctx.pool().parallel_runs(chunks, [&](std::int64_t i, int) {
        const auto* from = static_cast<const std::uint64_t*>(buffer.data()) + i * chunk / 8;
        sum += cpu::sum_memory(from, chunk / 8);
      });
    }
  });
  return static_cast<double>(passes * chunks * chunk) / timing.median;
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
  return 2.0 * kCopies * static_cast<double>(kBytes) / timing.median;
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
  return flops / timing.median;
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
  return 2 * n * n * n / timing.median;
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
  return ctx.device().is_cpu() ? cpu_bandwidth(ctx, std::max(bytes, 64 * std::int64_t{1024}))
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

}  // namespace tessera::profile
