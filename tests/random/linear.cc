// linear() and gated_linear(): every weight, epilogue and kernel against the float64 twin.
#include <algorithm>

#include "random/by_kernel.h"
#include "random/ops.h"
#include "support/compare.h"
#include "support/gated_case.h"
#include "support/linear_case.h"

namespace tessera::test {
namespace {

constexpr Activation kActivations[] = {Activation::none, Activation::relu, Activation::gelu,
                                       Activation::gelu_tanh, Activation::silu};

Activation draw_activation(Draws& draws) {
  std::vector<std::string> names;
  for (const Activation activation : kActivations) names.emplace_back(name(activation));
  return kActivations[draws.word("activation", names)];
}

// One of every_weight(), by its text without spaces.
WeightCase draw_weight(Draws& draws, const std::string& what) {
  const std::vector<WeightCase> weights = every_weight();
  std::vector<std::string> texts;
  for (const WeightCase& weight : weights) {
    texts.push_back(weight.text());
    std::replace(texts.back().begin(), texts.back().end(), ' ', '_');
  }
  return weights[draws.word(what, texts)];
}

struct ProductSizes {
  std::int64_t rows, in, out;
};

// Often a few rows, as in decoding; sides of a weight often whole tiles.
ProductSizes draw_product(Draws& draws, std::int64_t work) {
  const bool few = draws.chance("few_rows", 50);
  const std::int64_t rows = draws.size("rows", 1, few ? 20 : 600);
  const std::int64_t most = std::max<std::int64_t>(1, work / rows);
  const std::int64_t in = draws.size("in", 1, std::clamp<std::int64_t>(most / 16, 16, 6000));
  return {rows, in, draws.size("out", 1, std::clamp<std::int64_t>(most / in, 1, 3000))};
}

Activations draw_activations(Draws& draws) {
  return draws.word("activations", {"exact", "int8"}) == 0 ? Activations::exact : Activations::int8;
}

}  // namespace

void random_linear(Trial& trial) {
  Draws& draws = trial.draws;
  LinearCase c;
  c.weight = draw_weight(draws, "weight");
  const ProductSizes sizes = draw_product(draws, trial.work);
  c.rows = {sizes.rows};
  c.in = sizes.in;
  c.out = sizes.out;
  c.x_dtype = draws.dtype("dtype", kFloats);
  c.out_dtype = draws.chance("other_out", 20) ? draws.dtype("out_dtype", kFloats) : c.x_dtype;
  c.layout = draws.layout("layout");
  c.activation = draw_activation(draws);
  if (draws.chance("bias", 40)) c.bias = draws.dtype("bias_dtype", kFloats);
  c.residual = draws.chance("residual", 40);
  if (trial.on_cpu()) c.activations = draw_activations(draws);
  c.seed = draws.seed("seed");
  c.any_kernel = true;
  const bool fixed = draws.chance("fixed", 20);
  const std::int64_t fixed_rows = fixed ? draws.between("fixed_rows", 0, sizes.rows) : -1;

  trial.begin("any");
  LinearCall call(trial.ctx, c);
  call.args.fixed_rows = fixed_rows;
  const auto run = [&] {
    call.out.restore();
    linear(trial.ctx, call.args);
  };
  by_every_linear_kernel(trial, "linear", run, [&] {
    trial.expect(call.correct(), "out");
    const Array out = call.out.read();
    run();
    trial.expect(identical(call.out.read(), out), "other bits the second time");
  });
  if (!trial.on_cpu()) return;
  LinearCall again(trial.others, c);
  again.args.fixed_rows = fixed_rows;
  linear(trial.others, again.args);
  trial.expect(identical(call.out.read(), again.out.read()), "other bits with other threads");
}

void random_gated_linear(Trial& trial) {
  Draws& draws = trial.draws;
  GatedCase c;
  c.gate = draw_weight(draws, "gate");
  const bool mixed = draws.chance("mixed", 20);
  c.up = mixed ? draw_weight(draws, "up") : c.gate;
  const ProductSizes sizes = draw_product(draws, trial.work / 2);
  c.rows = sizes.rows;
  c.in = sizes.in;
  c.out = sizes.out;
  c.dtype = draws.dtype("dtype", kFloats);
  c.layout = draws.layout("layout");
  c.activation = draw_activation(draws);
  if (trial.on_cpu()) c.activations = draw_activations(draws);
  c.seed = draws.seed("seed");
  c.any_kernel = true;

  trial.begin("any");
  GatedCall call(trial.ctx, c);
  const auto run = [&] {
    call.out.restore();
    gated_linear(trial.ctx, call.args);
  };
  by_every_linear_kernel(trial, "gated_linear", run, [&] { trial.expect(call.correct(), "out"); });
}

}  // namespace tessera::test
