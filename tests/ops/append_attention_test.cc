// append_attention() beside rotary_append() and attention(), bit by bit, and beside the float64
// twins of both.
#include "tessera/append_attention.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/workspace.h"
#include "reference/attention.h"
#include "reference/kv_append.h"
#include "reference/rotary.h"
#include "support/append_case.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/sanitizers.h"
#include "tessera/error.h"

namespace tessera::test {
namespace {

class AppendAttentionTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, AppendAttentionTest, testing::ValuesIn(test_devices()),
                         device_name);

std::string text_of(const AppendCase& c) {
  return std::to_string(c.n_q) + " x " + std::to_string(c.heads) + "/" +
         std::to_string(c.kv_heads) + " x " + std::to_string(c.dim) + ", rotated " +
         std::to_string(c.dims) + ", pages of " + std::to_string(c.page) + ", hole of " +
         std::to_string(c.hole_size) + " " + c.mask.to_string() + " " + std::string(name(c.dtype));
}

// One op and two leave the same bits in the output and in the pages.
void check_step(Context& ctx, const AppendCase& c) {
  SCOPED_TRACE(text_of(c));
  AppendCall apart(ctx, c);
  rotary_append(ctx, apart.args.append);
  attention(ctx, apart.args.attention);
  AppendCall together(ctx, c);
  for (const bool settled : {false, true}) {
    for (TestTensor* written :
         {&together.k_pages, &together.v_pages, &together.q_out, &together.out}) {
      written->restore();
    }
    together.args.settled = settled;
    append_attention(ctx, together.args);
    EXPECT_TRUE(identical(together.out.read(), apart.out.read()));
    EXPECT_TRUE(identical(together.k_pages.read(), apart.k_pages.read()));
    EXPECT_TRUE(identical(together.v_pages.read(), apart.v_pages.read()));
    EXPECT_TRUE(together.out.surroundings_intact() && together.k_pages.surroundings_intact() &&
                together.v_pages.surroundings_intact() && together.q_out.surroundings_intact());
    EXPECT_TRUE(together.qkv.untouched() && together.table.untouched());
  }
}

TEST_P(AppendAttentionTest, IsRotaryAppendAndAttention) {
  Thinned thinned(2);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const std::int64_t dim : {64, 72, 80, 96, 128, 256}) {
      for (const std::int64_t n_q : {1, 2}) {
        if (!thinned.takes_next()) continue;
        check_step(ctx(), {.n_q = n_q,
                           .heads = 6,
                           .dim = dim,
                           .dims = dim == 80 ? 20 : dim,
                           .lengths = {37, 290, 2, 129},
                           .dtype = dtype});
      }
    }
  }
  check_step(ctx(), {.dtype = DType::f32});
  if (GetParam().is_cpu()) return;
  EXPECT_GT(ctx().trace().calls("append_attention", "cuda.append+split"), 10);
}

TEST_P(AppendAttentionTest, PagesHolesMasksAndStyles) {
  check_step(ctx(), {.heads = 16, .kv_heads = 1, .page = 5});
  check_step(ctx(), {.n_q = 5, .heads = 3, .kv_heads = 1, .page = 256, .lengths = {300, 5}});
  check_step(ctx(), {.page = 64, .style = RopeStyle::interleaved, .mask = Mask::window(20, 0)});
  check_step(ctx(), {.dims = 24, .lengths = {37, 600, 9}, .hole_begin = 4, .hole_size = 21});
  check_step(ctx(), {.page = 16, .lengths = {280}, .mask = Mask::sinks(3, 40)});
  check_step(ctx(), {.n_q = 16, .heads = 1, .kv_heads = 1, .dims = 16, .lengths = {48, 16, 20}});
  // Not one kernel: many rows, keys that are rotated as they are read.
  check_step(ctx(), {.n_q = 30, .lengths = {37, 130, 30}});
  check_step(ctx(), {.rotate_keys = false});
}

// Rows for nobody, as a step of a fixed size has: no keys and no slot.
TEST_P(AppendAttentionTest, SequencesWithoutKeys) {
  if (GetParam().is_cpu()) GTEST_SKIP() << "the CPU refuses a slot that is not there";
  check_step(ctx(), {.lengths = {0, 40, 0}});
  check_step(ctx(), {.n_q = 4, .lengths = {2, 40}});
}

TEST_P(AppendAttentionTest, BitsDoNotDependOnTheBatch) {
  const AppendCase many{.lengths = {700, 40, 17, 300}, .dtype = DType::f16};
  AppendCall batch(ctx(), many);
  batch.args.attention.fixed_splits = true;
  append_attention(ctx(), batch.args);
  const Array expected = batch.out.read();
  AppendCall again(ctx(), many);
  AppendAttentionArgs alone = again.args;
  alone.attention.fixed_splits = true;
  for (Tensor* tensor : {&alone.append.q, &alone.append.k, &alone.append.v, &alone.append.positions,
                         &alone.append.slots, &alone.append.q_out, &alone.attention.q,
                         &alone.attention.out, &alone.attention.pages.table,
                         &alone.attention.pages.lengths, &alone.attention.pages.holes}) {
    *tensor = tensor->slice(0, 3, 4);
  }
  append_attention(ctx(), alone);
  const Array found = again.out.read();
  for (std::int64_t h = 0; h < 4; ++h) {
    for (std::int64_t d = 0; d < 64; ++d) {
      ASSERT_EQ(found.at(3, 0, h, d), expected.at(3, 0, h, d)) << h << " " << d;
    }
  }
}

TEST_P(AppendAttentionTest, TakesTheScratchThatItSays) {
  AppendCall call(ctx(), {.lengths = {700, 40}});
  const auto said = [&] {
    const Workspace::Count count(ctx().workspace());
    append_attention(ctx(), call.args);
    return count.peak_bytes();
  }();
  ctx().workspace().reset_peak();
  append_attention(ctx(), call.args);
  EXPECT_LE(ctx().workspace_peak_bytes(), said);
}

TEST_P(AppendAttentionTest, AgainstTheTwins) {
  const AppendCase c{.n_q = 2, .dim = 80, .dims = 20, .lengths = {37, 290, 2}, .dtype = DType::f16};
  AppendCall step(ctx(), c);
  append_attention(ctx(), step.args);
  const auto heads = [&](std::int64_t begin, std::int64_t end) {
    const Array all = step.qkv.read();
    Array part({1, c.tokens(), end - begin, c.dim});
    for (std::int64_t t = 0; t < c.tokens(); ++t) {
      for (std::int64_t h = begin; h < end; ++h) {
        for (std::int64_t d = 0; d < c.dim; ++d) part.at(0, t, h - begin, d) = all.at(t, h, d);
      }
    }
    return part;
  };
  const auto rotated = [&](const Array& x) {
    return reference::rotary(x, step.positions.read(), step.inv_freq.read(), c.style);
  };
  Array q = rotated(heads(0, 4)), k = rotated(heads(4, 6)), v = heads(6, 8);
  q.shape = {c.batch(), c.n_q, 4, c.dim};
  k.shape = v.shape = {c.tokens(), 2, c.dim};
  AppendCall before(ctx(), c);
  reference::AttentionInputs in{
      .q = q,
      .k = reference::kv_append(k, step.slot_values, before.k_pages.read()),
      .v = reference::kv_append(v, step.slot_values, before.v_pages.read()),
      .mask = c.mask,
      .page_table = step.table_values,
      .lengths = step.counts(),
      .holes = step.make_holes()};
  EXPECT_LT(relative_error(step.out.read(), reference::attention(in).out), 2e-3);
}

// How the op refuses the step of a case after a change.
template <typename Change>
std::string refusal_of(Context& ctx, Change change) {
  AppendCall step(ctx, {});
  change(step.args);
  try {
    append_attention(ctx, step.args);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_P(AppendAttentionTest, RefusesWhatDoesNotBelongTogether) {
  EXPECT_EQ(refusal_of(ctx(), [](AppendAttentionArgs& a) { a.attention.k = a.attention.v; }),
            "append_attention: attention.k bf16[54, 16, 2, 64] and attention.v bf16[54, 16, 2, 64] "
            "must be append.k_pages bf16[54, 16, 2, 64] and append.v_pages bf16[54, 16, 2, 64]");
  EXPECT_EQ(refusal_of(ctx(),
                       [](AppendAttentionArgs& a) {
                         a.attention.q = a.attention.out;
                         a.attention.out = a.append.q_out.view({3, 1, 4, 64});
                       }),
            "append_attention: attention.q bf16[3, 1, 4, 64] must have the rows of append.q_out "
            "bf16[3, 4, 64], [batch, n_q, heads, dim]");
  EXPECT_EQ(refusal_of(ctx(), [](AppendAttentionArgs& a) { a.append.slots = {}; }),
            "append_attention: slots was not given");
}

}  // namespace
}  // namespace tessera::test
