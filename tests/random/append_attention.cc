// append_attention() beside rotary_append() and attention(), bit by bit, and its output against the
// float64 twin of attention over what the two left in the pages.
#include "tessera/append_attention.h"

#include <algorithm>
#include <cmath>

#include "random/drawn_attention.h"
#include "random/ops.h"
#include "support/append_case.h"
#include "support/compare.h"

namespace tessera::test {
namespace {

Mask draw_step_mask(Draws& draws) {
  const std::size_t kind = draws.word("mask", {"causal", "causal", "window", "sinks"});
  if (kind < 2) return Mask::causal();
  const std::int64_t reach = draws.size("reach", 0, 200);
  return kind == 2 ? Mask::window(reach, 0) : Mask::sinks(draws.between("sinks", 1, 5), reach + 1);
}

AppendCase draw_step(Draws& draws, std::int64_t work) {
  AppendCase c;
  c.dtype = draws.dtype("dtype", kFloats);
  c.dim = draws.chance("odd_dim", 15) ? draws.between("dim", 2, 256)
                                      : draws.one_of("dim", {32, 64, 64, 80, 96, 128, 256});
  c.dims =
      draws.chance("all_rotated", 60) ? c.dim / 2 * 2 : 2 * draws.between("pairs", 1, c.dim / 2);
  c.kv_heads = draws.between("kv_heads", 1, 4);
  c.heads = c.kv_heads * draws.one_of("group", {1, 1, 2, 3, 4, 8});
  c.n_q = draws.chance("one_token", 60) ? 1 : draws.size("n_q", 1, 40);
  const std::int64_t batch = draws.between("sequences", 1, 5);
  const std::int64_t most = work / (c.dim * c.heads * c.n_q * batch);
  c.lengths = draws.sizes("lengths", batch, c.n_q, std::clamp<std::int64_t>(most, c.n_q, 3000));
  c.page = draws.one_of("page_size", {1, 5, 16, 32, 64, 256});
  if (draws.chance("holes", 30)) {
    c.hole_begin = draws.between("hole_begin", 0, 9);
    c.hole_size = draws.size("hole_size", 1, 70);
  }
  c.style = draws.word("rope", {"half_split", "interleaved"}) == 0 ? RopeStyle::half_split
                                                                   : RopeStyle::interleaved;
  c.mask = draw_step_mask(draws);
  c.rotate_keys = draws.chance("rotate_keys", 85);
  c.seed = draws.seed("seed");
  return c;
}

// What attention() was given, as the twin takes it.
DrawnAttention as_drawn(const AppendCall& call, const Array& rotated_q) {
  const AppendCase& c = call.shape;
  DrawnAttention drawn;
  drawn.dtype = drawn.stored = c.dtype;
  drawn.in = {.q = rotated_q,
              .k = call.k_pages.read(),
              .v = call.v_pages.read(),
              .mask = c.mask,
              .page_table = call.table_values,
              .lengths = call.counts(),
              .holes = call.make_holes()};
  drawn.in.q.shape = {c.batch(), c.n_q, c.heads, c.dim};
  if (!c.rotate_keys) {
    drawn.in.inv_freq = call.frequencies();
    drawn.in.rope_style = c.style;
  }
  return drawn;
}

}  // namespace

void random_append_attention(Trial& trial) {
  const AppendCase c = draw_step(trial.draws, trial.work);
  const bool settled = trial.draws.chance("settled", 50);
  trial.begin("rotary_append and attention");
  AppendCall apart(trial.ctx, c);
  rotary_append(trial.ctx, apart.args.append);
  const Array rotated_q = apart.q_out.read();
  attention(trial.ctx, apart.args.attention);

  trial.begin("the chosen one");
  AppendCall together(trial.ctx, c), again(trial.others, c);
  together.args.settled = again.args.settled = settled;
  append_attention(trial.ctx, together.args);
  append_attention(trial.others, again.args);
  trial.expect(identical(together.out.read(), apart.out.read()), "out has other bits than apart");
  trial.expect(identical(together.k_pages.read(), apart.k_pages.read()), "k_pages");
  trial.expect(identical(together.v_pages.read(), apart.v_pages.read()), "v_pages");
  trial.expect(identical(together.out.read(), again.out.read()), "other bits the second time");
  trial.expect(together.out.surroundings_intact() && together.k_pages.surroundings_intact() &&
                   together.v_pages.surroundings_intact() && together.q_out.surroundings_intact(),
               "something around an output was written");
  trial.expect(together.qkv.untouched() && together.table.untouched(), "an input was written");

  trial.begin("exact");
  DrawnAttention drawn = as_drawn(apart, rotated_q);
  const Array exact = reference::attention(drawn.in).out;
  DrawnAttention positive = drawn;
  for (double& value : positive.in.v.data) value = std::abs(value);
  const Array magnitude = reference::attention(positive.in).out;
  const bool rounds = !trial.on_cpu() && c.dtype != DType::f32;
  trial.expect_within(together.out.read(), exact, out_bound(drawn, exact, magnitude, rounds),
                      "out");
}

}  // namespace tessera::test
