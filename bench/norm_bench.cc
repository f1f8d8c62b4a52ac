// layer_norm and rms_norm on the CPU: time and memory traffic, with up to three residuals fused in.
// One row is a decode step of a model of width 2560 (everything stays in the cache); 1024 rows are
// a prefill. Tensors are used in turns, so that 1024 rows come from memory.
#include <benchmark/benchmark.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/buffer.h"
#include "tessera/context.h"
#include "tessera/norm.h"

namespace {

using namespace tessera;

constexpr std::int64_t kWidth = 2560;
constexpr int kSets = 4;  // sets of tensors, used in turns

using Norm = void (*)(Context&, const NormArgs&);

// x, three residuals, sum, out.
struct TensorSet {
  std::array<Buffer, 6> buffers;
  NormArgs args;

  TensorSet(DType dtype, std::int64_t rows, int residuals, const Tensor& weight) {
    std::array<Tensor, 6> tensors;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      buffers[i] = Buffer(dtype, {rows, kWidth});
      tensors[i] = buffers[i].tensor(dtype, {rows, kWidth});
      // Any finite numbers will do, unless they are all equal. Bytes 0x30..0x3f are small positive
      // floats.
      unsigned char* bytes = tensors[i].ptr<unsigned char>();
      for (std::int64_t b = 0; b < buffers[i].bytes(); ++b) {
        bytes[b] = static_cast<unsigned char>(0x30 + b * 7 % 16);
      }
    }
    args.x = tensors[0];
    for (int r = 0; r < residuals; ++r) args.residuals[r] = tensors[1 + r];
    if (residuals > 0) args.sum = tensors[4];
    args.out = tensors[5];
    args.weight = weight;
  }
};

void run(benchmark::State& state, Norm norm, DType dtype) {
  const std::int64_t rows = state.range(0);
  const int residuals = static_cast<int>(state.range(1));
  Context ctx;
  const std::vector<float> ones(kWidth, 1.f);
  Buffer weight(DType::f32, {kWidth});
  copy_bytes(ctx, weight.data(), Device::cpu(), ones.data(), Device::cpu(), weight.bytes());
  std::vector<TensorSet> sets;
  for (int i = 0; i < kSets; ++i) {
    sets.emplace_back(dtype, rows, residuals, weight.tensor(DType::f32, {kWidth}));
  }
  std::size_t next = 0;
  for (auto _ : state) norm(ctx, sets[next++ % kSets].args);

  const std::int64_t tensors = 2 + residuals + (residuals > 0);
  const std::int64_t bytes = tensors * sets[0].args.x.bytes() + weight.bytes();
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(bytes) * 1e-9,
                                              benchmark::Counter::kIsIterationInvariantRate);
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"rows", "residuals"})->ArgsProduct({{1, 1024}, {0, 1, 3}})->UseRealTime();
}

BENCHMARK_CAPTURE(run, layer_norm_f32, layer_norm, DType::f32)->Apply(shapes);
BENCHMARK_CAPTURE(run, layer_norm_bf16, layer_norm, DType::bf16)->Apply(shapes);
BENCHMARK_CAPTURE(run, rms_norm_f32, rms_norm, DType::f32)->Apply(shapes);
BENCHMARK_CAPTURE(run, rms_norm_bf16, rms_norm, DType::bf16)->Apply(shapes);

}  // namespace
