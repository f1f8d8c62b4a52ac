// The norms of two models, with and without a residual add, for one token and for a prompt.
#include <fmt/format.h>

#include "bench_suites.h"
#include "tessera/norm.h"

namespace tessera::app {
namespace {

struct NormShape {
  const char* name;
  bool rms;
  std::int64_t width;
};
constexpr NormShape kNormShapes[] = {{"pythia-2.8b layer_norm", false, 2560},
                                     {"llama-8b rms_norm", true, 4096}};

void bench_norm_call(const SuiteArgs& args, const NormShape& shape, std::int64_t tokens,
                     bool residual) {
  Context& ctx = args.ctx;
  const DType dtype = usual_dtype(ctx);
  const std::int64_t n = shape.width;
  const Buffer x = random_tensor(ctx, dtype, {tokens, n}, 6);
  const Buffer added = random_tensor(ctx, dtype, {tokens, n}, 7);
  const Buffer weight = random_tensor(ctx, dtype, {n}, 8), bias = random_tensor(ctx, dtype, {n}, 9);
  const Buffer out(dtype, {tokens, n}, ctx.device()), sum(dtype, {tokens, n}, ctx.device());
  NormArgs norm{.x = x.tensor(), .weight = weight.tensor(), .out = out.tensor()};
  if (!shape.rms) norm.bias = bias.tensor();
  if (residual) {
    norm.residuals[0] = added.tensor();
    norm.sum = sum.tensor();
  }
  measure_op(args,
             {.suite = "norm",
              .test = fmt::format("{} [{}]{}, {} token{}", shape.name, n,
                                  residual ? " + residual" : "", tokens, tokens == 1 ? "" : "s")},
             [&](std::int64_t) { shape.rms ? rms_norm(ctx, norm) : layer_norm(ctx, norm); });
}

}  // namespace

void bench_norm(const SuiteArgs& args) {
  for (const NormShape& shape : kNormShapes) {
    for (const std::int64_t tokens : {1, 512}) {
      for (const bool residual : {false, true}) bench_norm_call(args, shape, tokens, residual);
    }
  }
}

}  // namespace tessera::app
