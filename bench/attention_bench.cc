// Attention on the CPU: prefill against the arithmetic rate, decode against memory bandwidth.
//
//   bench_attention --benchmark_filter=prefill
//
// Prefill counts the multiplications and additions of visible pairs. Decode counts the bytes of
// keys and values, which it reads once. Decode rotates among copies of the KV cache that together
// exceed the last-level cache.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "core/half.h"
#include "core/philox.h"
#include "tessera/attention.h"
#include "tessera/buffer.h"

namespace tessera {
namespace {

// Numbers in [-1, 1), the same on every run.
void fill(const Buffer& buffer, DType dtype) {
  const std::int64_t n = buffer.bytes() / size_of(dtype);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t word = philox(1, {static_cast<std::uint32_t>(i), 0, 0, 0})[0];
    const float x = static_cast<float>(word) * 0x1p-31f - 1.0f;
    if (dtype == DType::f32) {
      static_cast<float*>(buffer.data())[i] = x;
    } else {
      static_cast<Half*>(buffer.data())[i] = to_f16(x);
    }
  }
}

struct Shape {
  std::int64_t n_q, n_k, heads, kv_heads, dim;
  DType dtype = DType::f32;
};

struct Problem {
  explicit Problem(const Shape& s, const Mask& mask = {})
      : q(s.dtype, {1, s.n_q, s.heads, s.dim}),
        k(s.dtype, {1, s.n_k, s.kv_heads, s.dim}),
        v(s.dtype, {1, s.n_k, s.kv_heads, s.dim}),
        out(s.dtype, {1, s.n_q, s.heads, s.dim}),
        lse(DType::f32, {1, s.heads, s.n_q}),
        args{.q = q.tensor(s.dtype, {1, s.n_q, s.heads, s.dim}),
             .k = k.tensor(s.dtype, {1, s.n_k, s.kv_heads, s.dim}),
             .v = v.tensor(s.dtype, {1, s.n_k, s.kv_heads, s.dim}),
             .out = out.tensor(s.dtype, {1, s.n_q, s.heads, s.dim}),
             .lse = lse.tensor(DType::f32, {1, s.heads, s.n_q}),
             .mask = mask} {
    for (const Buffer* buffer : {&q, &k, &v}) fill(*buffer, s.dtype);
  }

  Buffer q, k, v, out, lse;
  AttentionArgs args;
};

// The flops of one call, from the trace.
std::int64_t flops_of(Context& ctx, const char* op) {
  for (const TraceEntry& entry : ctx.trace().entries()) {
    if (entry.op == op) return entry.flops / entry.calls;
  }
  return 0;
}

void count_flops(benchmark::State& state, std::int64_t flops) {
  state.counters["FLOP/s"] =
      benchmark::Counter(static_cast<double>(flops), benchmark::Counter::kIsIterationInvariantRate,
                         benchmark::Counter::kIs1000);
}

void prefill(benchmark::State& state, const Mask& mask, DType dtype) {
  const std::int64_t length = state.range(0), dim = state.range(1);
  Context ctx({.trace = true});
  const Problem problem({length, length, 1, 1, dim, dtype}, mask);
  attention(ctx, problem.args);
  const std::int64_t flops = flops_of(ctx, "attention");
  ctx.trace().enable(false);
  for (auto _ : state) attention(ctx, problem.args);
  count_flops(state, flops);
}

void backward(benchmark::State& state) {
  const std::int64_t length = state.range(0), dim = state.range(1);
  Context ctx({.trace = true});
  const Problem problem({length, length, 1, 1, dim}, Mask::causal());
  const Problem gradients({length, length, 1, 1, dim});
  attention(ctx, problem.args);
  const AttentionBackwardArgs args{problem.args, gradients.args.out, gradients.args.q,
                                   gradients.args.k, gradients.args.v};
  fill(gradients.out, DType::f32);
  attention_backward(ctx, args);
  const std::int64_t flops = flops_of(ctx, "attention_backward");
  ctx.trace().enable(false);
  for (auto _ : state) attention_backward(ctx, args);
  count_flops(state, flops);
}

void decode(benchmark::State& state, DType dtype) {
  const std::int64_t context = state.range(0), dim = state.range(1), group = state.range(2);
  constexpr std::int64_t kKvHeads = 8, kBeyondCache = 128 << 20;
  const std::int64_t bytes = 2 * context * kKvHeads * dim * size_of(dtype);
  Context ctx;
  std::vector<Problem> problems;
  while (static_cast<std::int64_t>(problems.size()) * bytes < kBeyondCache) {
    problems.emplace_back(Shape{1, context, kKvHeads * group, kKvHeads, dim, dtype},
                          Mask::causal());
  }
  std::size_t next = 0;
  for (auto _ : state) {
    attention(ctx, problems[next].args);
    next = next + 1 == problems.size() ? 0 : next + 1;
  }
  state.SetBytesProcessed(state.iterations() * bytes);
}

using Bench = benchmark::internal::Benchmark;

void in_real_time(Bench* bench) { bench->Unit(benchmark::kMillisecond)->UseRealTime(); }

void lengths(Bench* bench) {
  bench->ArgNames({"S", "D"})->ArgsProduct({{512, 1024, 2048, 4096}, {64, 128}});
  in_real_time(bench);
}

void long_sequence(Bench* bench) {
  bench->ArgNames({"S", "D"})->ArgsProduct({{4096}, {64, 128}});
  in_real_time(bench);
}

void contexts(Bench* bench) {
  bench->ArgNames({"context", "D", "group"})->ArgsProduct({{512, 2048, 8192}, {64, 128}, {1, 4}});
  in_real_time(bench);
}

BENCHMARK_CAPTURE(prefill, causal, Mask::causal(), DType::f32)->Apply(lengths);
BENCHMARK_CAPTURE(prefill, full, Mask::full(), DType::f32)->Apply(lengths);
BENCHMARK_CAPTURE(prefill, causal_f16, Mask::causal(), DType::f16)->Apply(long_sequence);
BENCHMARK_CAPTURE(prefill, window_256, Mask::window(255, 0), DType::f32)->Apply(long_sequence);
BENCHMARK_CAPTURE(prefill, sinks_4_256, Mask::sinks(4, 256), DType::f32)->Apply(long_sequence);
BENCHMARK_CAPTURE(prefill, strided_blocks, Mask::blocks(BlockMask::strided(64, 64, 64, 1, 8), true),
                  DType::f32)
    ->Apply(long_sequence);
BENCHMARK_CAPTURE(decode, f32, DType::f32)->Apply(contexts);
BENCHMARK_CAPTURE(decode, f16, DType::f16)->Apply(contexts);
BENCHMARK(backward)->Apply(lengths);

}  // namespace
}  // namespace tessera
