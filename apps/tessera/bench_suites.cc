// What the suites share: timing of an op, and random tensors.
#include "bench_suites.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "profile/timing.h"
#include "tessera/convert.h"

namespace tessera::app {
namespace {

// Calls that are timed as one: short ones are too short for a clock, and on a GPU the host must not
// wait after each.
std::int64_t calls_of_a_round(const Context& ctx, double seconds) {
  const double round = ctx.device().is_cpu() ? 100e-6 : 1e-3;
  return std::clamp<std::int64_t>(std::llround(round / std::max(seconds, 1e-9)), 1, 1000);
}

}  // namespace

void measure_op(const SuiteArgs& args, const OpQuestion& question,
                FunctionRef<void(std::int64_t call)> op) {
  Context& ctx = args.ctx;
  std::int64_t call = 0;
  op(call++);  // a warm-up
  ctx.trace().clear();
  ctx.trace().enable();
  op(call++);
  ctx.trace().enable(false);
  const TraceEntry traced = ctx.trace().entries().back();
  ctx.trace().clear();

  const std::int64_t calls = calls_of_a_round(ctx, traced.seconds);
  const double budget = args.quick ? 0.1 : 0.35;
  const double round_seconds = std::max(traced.seconds * static_cast<double>(calls), 1e-9);
  const int rounds = static_cast<int>(std::clamp(budget / round_seconds, 5.0, 200.0));
  profile::Timing time = profile::time_rounds(rounds, [&] {
    for (std::int64_t i = 0; i < calls; ++i) op(call++);
    ctx.synchronize();
  });
  profile::Ceilings ceilings = args.results.ceilings;
  if (!question.from_memory) ceilings.read_bandwidth = args.bandwidths.over(traced.bytes);
  const auto n = static_cast<double>(calls);
  time = {time.median / n, time.fastest / n, time.slowest / n};
  args.results.ops.push_back(
      {.suite = question.suite,
       .test = question.test,
       .kernel = traced.kernel,
       .time = time,
       .bytes = traced.bytes,
       .flops = traced.flops,
       .floor_seconds = ceilings.floor_seconds(traced.bytes, traced.flops, traced.kernel)});
}

DType usual_dtype(const Context& ctx) { return ctx.device().is_cpu() ? DType::f32 : DType::f16; }

Buffer random_tensor(Context& ctx, DType dtype, std::initializer_list<std::int64_t> shape,
                     std::uint64_t seed) {
  Buffer host(DType::f32, shape);
  auto* values = static_cast<float*>(host.data());
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (std::int64_t i = 0; i < host.tensor().numel(); ++i) {  // xorshift: speed is all that matters
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    values[i] = 0.04f * (static_cast<float>(state >> 40) * 0x1p-24f - 0.5f);
  }
  if (ctx.device().is_cpu() && dtype == DType::f32) return host;
  Buffer moved(DType::f32, shape, ctx.device());
  copy_bytes(ctx, moved.data(), ctx.device(), host.data(), Device::cpu(), host.bytes());
  if (dtype == DType::f32) return moved;
  Buffer result(dtype, shape, ctx.device());
  convert(ctx, {.x = moved.tensor(), .out = result.tensor()});
  ctx.synchronize();  // `moved` ends here
  return result;
}

}  // namespace tessera::app
