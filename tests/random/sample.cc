// sample() and sample_rows(): the same tokens as the float64 twin draws.
#include "reference/sample.h"

#include "random/ops.h"
#include "support/compare.h"
#include "support/word_tensor.h"
#include "tessera/sample.h"
#include "tessera/sample_rows.h"

namespace tessera::test {
namespace {

DrawOptions draw_sampling(Draws& draws) {
  DrawOptions o;
  o.temperature = draws.real("temperature", {0.0, 0.3, 1.0, 1.0, 1.7, 20.0});
  o.top_k = draws.one_of("top_k", {0, 0, 1, 7, 40, 1000, 100000});
  o.top_p = draws.real("top_p", {1.0, 1.0, 0.01, 0.5, 0.9, 0.999});
  o.min_p = draws.real("min_p", {0.0, 0.0, 0.02, 0.3, 1.0});
  o.seed = draws.seed("draw_seed");
  o.draw = static_cast<std::uint64_t>(draws.between("draw", 0, 1000));
  return o;
}

}  // namespace

void random_sample(Trial& trial) {
  Draws& draws = trial.draws;
  const std::int64_t n = draws.size("n", 1, std::min<std::int64_t>(trial.work, 150000));
  const std::int64_t rows = draws.between("rows", 1, n > 20000 ? 2 : 6);
  const DrawOptions o = draw_sampling(draws);
  const DType dtype = draws.dtype("dtype", kFloats);
  const Layout layout = draws.layout("layout");
  const double spread = draws.real("spread", {0.0, 0.5, 3.0, 30.0});

  trial.begin("any");
  Context& ctx = trial.ctx;
  const TestTensor logits(ctx, random_normal({rows, n}, draws.seed("seed"), spread), dtype, layout);
  const TestTensor ids = TestTensor::poisoned(ctx, {rows}, DType::i32);
  sample(ctx, {.logits = logits,
               .temperature = o.temperature,
               .top_k = o.top_k,
               .top_p = o.top_p,
               .min_p = o.min_p,
               .seed = o.seed,
               .draw = o.draw,
               .ids = ids});
  const Array values = logits.read();
  Array expected({rows}), numbers({rows});
  std::vector<DrawOptions> options;
  for (std::int64_t r = 0; r < rows; ++r) {
    const double* row = values.row(r);
    const std::vector<double> p =
        reference::distribution({row, row + n}, {o.temperature, o.top_k, o.top_p, o.min_p});
    expected.at(r) = reference::drawn_token(p, o.seed, o.draw + static_cast<std::uint64_t>(r));
    numbers.at(r) = static_cast<double>(r);
    options.push_back(o);
    options.back().draw += static_cast<std::uint64_t>(r);
  }
  trial.expect(identical(ids.read(), expected), "ids of sample");
  trial.expect(ids.surroundings_intact() && logits.untouched(), "something else was written");

  const TestTensor f32(ctx, values, DType::f32, layout), row_numbers(ctx, numbers, DType::i32);
  const TestTensor row_ids = TestTensor::poisoned(ctx, {rows}, DType::i32);
  const WordTensor<DrawOptions> words(ctx, options);
  sample_rows(ctx, {.logits = f32, .rows = row_numbers, .options = words, .ids = row_ids});
  trial.expect(identical(row_ids.read(), expected), "ids of sample_rows");
}

}  // namespace tessera::test
