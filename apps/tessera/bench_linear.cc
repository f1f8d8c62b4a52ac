// linear() on the largest layer of three models, dense and packed, for one token and for a prompt.
#include <fmt/format.h>

#include <optional>
#include <vector>

#include "bench_suites.h"
#include "tessera/linear.h"
#include "tessera/quant.h"

namespace tessera::app {
namespace {

struct LinearShape {
  const char* name;
  std::int64_t n, k;
  bool in_quick;
};
constexpr LinearShape kLinearShapes[] = {{"pythia-160m up", 3072, 768, true},
                                         {"pythia-2.8b up", 10240, 2560, false},
                                         {"llama-8b out", 4096, 4096, true},
                                         {"llama-8b up", 14336, 4096, false}};

struct LinearFormat {
  const char* name;
  std::optional<QuantizeOptions> pack;
};

std::vector<LinearFormat> bench_formats(const Context& ctx) {
  const auto packed = [](Format format, std::int64_t group) {
    return QuantizeOptions{.format = format, .group = group, .search = ScaleSearch::from_max};
  };
  return {{ctx.device().is_cpu() ? "f32" : "f16", {}},
          {"int8", packed(Format::int8, -1)},
          {"int4:32", packed(Format::int4, 32)},
          {"nvfp4", packed(Format::nvfp4, -1)}};
}

// Copies of a weight, used in turns, so that none is in a cache when its turn comes again.
std::vector<PackedWeight> copies_of(Context& ctx, const Weight& weight, bool quick) {
  const std::int64_t bytes = std::int64_t{quick ? 96 : 192} << 20;
  std::vector<PackedWeight> copies;
  for (std::int64_t i = bytes / weight.bytes() + 1; i > 0; --i) {
    copies.push_back(prepare(ctx, weight));
  }
  return copies;
}

void bench_shape(const SuiteArgs& args, const LinearShape& shape) {
  Context& ctx = args.ctx;
  const DType dtype = usual_dtype(ctx);
  const std::int64_t prompt = args.quick ? 128 : 512;
  const Buffer dense = random_tensor(ctx, dtype, {shape.n, shape.k}, 1);
  const Buffer x = random_tensor(ctx, dtype, {prompt, shape.k}, 2);
  const Buffer out(dtype, {prompt, shape.n}, ctx.device());
  for (const LinearFormat& format : bench_formats(ctx)) {
    const PackedWeight packed =
        format.pack ? quantize(ctx, dense.tensor(), *format.pack) : PackedWeight{};
    const Weight weight = format.pack ? packed.weight : Weight::dense(dense.tensor());
    const std::vector<PackedWeight> copies = copies_of(ctx, weight, args.quick);
    for (const std::int64_t tokens : {std::int64_t{1}, prompt}) {
      measure_op(args,
                 {.suite = "linear",
                  .test = fmt::format("{} [{}, {}], {}, {} token{}", shape.name, shape.n, shape.k,
                                      format.name, tokens, tokens == 1 ? "" : "s"),
                  .from_memory = true},
                 [&](std::int64_t call) {
                   const auto turn = static_cast<std::size_t>(call) % copies.size();
                   linear(ctx, {.x = x.tensor(dtype, {tokens, shape.k}),
                                .weight = copies[turn].weight,
                                .out = out.tensor(dtype, {tokens, shape.n})});
                 });
    }
  }
}

}  // namespace

void bench_linear(const SuiteArgs& args) {
  for (const LinearShape& shape : kLinearShapes) {
    if (!args.quick || shape.in_quick) bench_shape(args, shape);
  }
}

}  // namespace tessera::app
