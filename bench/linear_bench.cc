// linear() on the CPU for every weight format: decoding (one token, bound by memory), a step of
// some streams (8 tokens) and prefill (many tokens, bound by arithmetic).
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "random_matrix.h"
#include "tessera/linear.h"
#include "tessera/quant.h"

namespace {

using namespace tessera;

struct Shape {
  std::int64_t m, n, k;  // tokens, output features, depth
};
constexpr Shape kDecode{1, 4096, 4096};
constexpr Shape kStreams{8, 3072, 768};
constexpr Shape kPrefill{512, 2048, 2048};

struct WeightKind {
  std::string name;
  DType dtype = DType::f32;  // of a dense weight
  QuantizeOptions packed{.format = Format::dense};
  bool prepared = true;
};

// Copies of one weight, used in turns: none is still in a cache when it is used again.
std::vector<PackedWeight> weights_of(Context& ctx, const WeightKind& kind, const Shape& shape) {
  constexpr std::int64_t kStreamedBytes = std::int64_t{160} << 20;
  const Buffer dense = random_matrix(shape.n, shape.k, 1);
  const Tensor matrix = dense.tensor(DType::f32, {shape.n, shape.k});
  PackedWeight first;
  if (kind.packed.format == Format::dense) {
    first.storage = Buffer(kind.dtype, {shape.n, shape.k});
    first.weight = Weight::dense(first.storage.tensor(kind.dtype, {shape.n, shape.k}));
    dequantize(ctx, Weight::dense(matrix), first.weight.data);
  } else {
    first = quantize(ctx, matrix, kind.packed);
  }
  std::vector<PackedWeight> weights;
  if (kind.prepared) {
    for (std::int64_t bytes = 0; bytes < kStreamedBytes; bytes += first.weight.bytes()) {
      weights.push_back(prepare(ctx, first.weight));
    }
  } else {
    weights.push_back(std::move(first));
  }
  return weights;
}

void run(benchmark::State& state, const WeightKind& kind, const Shape& shape,
         Activations activations) {
  Context ctx({.activations = activations});
  const std::vector<PackedWeight> weights = weights_of(ctx, kind, shape);
  const Buffer x = random_matrix(shape.m, shape.k, 2);
  const Buffer out(DType::f32, {shape.m, shape.n});
  LinearArgs args{.x = x.tensor(DType::f32, {shape.m, shape.k}),
                  .out = out.tensor(DType::f32, {shape.m, shape.n})};
  std::size_t turn = 0;
  for (auto _ : state) {
    args.weight = weights[turn++ % weights.size()].weight;
    linear(ctx, args);
  }
  const double bytes = static_cast<double>(args.x.bytes() + args.weight.bytes() + args.out.bytes());
  const double flops = 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n * shape.k);
  constexpr auto kRate = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["GB/s"] = benchmark::Counter(bytes * 1e-9, kRate);
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, kRate);
}

void add(const WeightKind& kind) {
  const auto add_one = [&](const char* shape_name, const Shape& shape, Activations activations) {
    const bool int8 = activations == Activations::int8;
    benchmark::RegisterBenchmark(
        (std::string(shape_name) + "/" + kind.name + (int8 ? "/int8" : "/exact")).c_str(),
        [=](benchmark::State& state) { run(state, kind, shape, activations); })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  };
  const bool tiles = kind.packed.format != Format::dense && kind.packed.format != Format::fp8;
  for (Activations activations : {Activations::exact, Activations::int8}) {
    if (activations == Activations::int8 && !(tiles && kind.prepared)) continue;
    add_one("decode", kDecode, activations);
    add_one("streams", kStreams, activations);
    add_one("prefill", kPrefill, activations);
  }
}

const bool kRegistered = [] {
  for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    add({.name = std::string(name(dtype)), .dtype = dtype});
  }
  constexpr ScaleSearch kQuick = ScaleSearch::from_max;
  for (const FormatInfo& format : formats()) {
    add({.name = std::string(format.name), .packed = {.format = format.format, .search = kQuick}});
  }
  add({.name = "int4_group32", .packed = {.format = Format::int4, .group = 32, .search = kQuick}});
  add({.name = "int4_group32_zero",
       .packed = {.format = Format::int4, .group = 32, .zero_point = true, .search = kQuick}});
  add({.name = "nvfp4_published",
       .packed = {.format = Format::nvfp4, .search = kQuick},
       .prepared = false});
  return true;
}();

}  // namespace
