#include "tessera/rotary_append.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "core/cache_dtype.h"
#include "reference/kv_append.h"
#include "reference/rotary.h"
#include "reference/rounding.h"
#include "reference/test_tensor.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/refusal.h"
#include "tessera/kv_append.h"

namespace tessera::test {
namespace {

struct RotaryAppendCase {
  std::int64_t tokens = 7, heads = 6, kv_heads = 3, dim = 20, dims = 10;
  RopeStyle style = RopeStyle::half_split;
  DType dtype = DType::f32;
  Layout layout = Layout::contiguous;
  bool rotate_keys = true;
  DType position_dtype = DType::i32;
  std::optional<DType> stored{};  // of the pages, where it is not dtype

  DType stored_dtype() const { return stored.value_or(dtype); }

  std::string text() const {
    return std::to_string(tokens) + " tokens, " + std::to_string(heads) + " and " +
           std::to_string(kv_heads) + " x " + std::to_string(dim) + ", rotated " +
           std::to_string(dims) +
           (style == RopeStyle::half_split ? " half_split " : " interleaved ") +
           std::string(name(dtype)) + " " + to_string(layout) +
           (rotate_keys ? "" : " keys as they are") + " positions " +
           std::string(name(position_dtype)) + " pages " + std::string(name(stored_dtype()));
  }
};

constexpr std::int64_t kPageSize = 3;

Array append_inv_freq(std::int64_t dims) {
  Array result({dims / 2});
  const std::vector<float> values = rope_inv_freq(dims);
  result.data.assign(values.begin(), values.end());
  return result;
}

// Distinct slots in descending order.
Array falling_slots(std::int64_t tokens) {
  Array slots({tokens});
  for (std::int64_t i = 0; i < tokens; ++i) slots.at(i) = static_cast<double>(tokens - i);
  return slots;
}

struct RotaryAppendCall {
  TestTensor q, k, v, positions, inv_freq, slots, k_pages, v_pages, k_scales, v_scales, q_out;
  RotaryAppendArgs args;

  RotaryAppendCall(Context& ctx, const RotaryAppendCase& c)
      : RotaryAppendCall(ctx, c, falling_slots(c.tokens)) {}
  RotaryAppendCall(Context& ctx, const RotaryAppendCase& c, const Array& slot_values)
      : q(ctx, random_normal({c.tokens, c.heads, c.dim}, 1), c.dtype, c.layout),
        k(ctx, random_normal({c.tokens, c.kv_heads, c.dim}, 2), c.dtype, c.layout),
        v(ctx, random_normal({c.tokens, c.kv_heads, c.dim}, 3), c.dtype, c.layout),
        positions(ctx, random_integers({c.tokens}, 4, 0, 5000), c.position_dtype),
        inv_freq(ctx, append_inv_freq(c.dims), DType::f32),
        slots(ctx, slot_values, DType::i32),
        k_pages(pool(ctx, c)),
        v_pages(pool(ctx, c)),
        k_scales(scales(ctx, c)),
        v_scales(scales(ctx, c)),
        q_out(TestTensor::poisoned(ctx, {c.tokens, c.heads, c.dim}, c.dtype, c.layout)),
        args{q,     k,       v,       positions, {inv_freq, c.style}, c.rotate_keys,
             slots, k_pages, v_pages, q_out} {
    if (!has_scales(c.stored_dtype())) return;
    args.k_scales = k_scales;
    args.v_scales = v_scales;
  }

  static TestTensor pool(Context& ctx, const RotaryAppendCase& c) {
    const std::int64_t pages = (c.tokens + 1) / kPageSize + 1;
    return TestTensor::poisoned(ctx, {pages, kPageSize, c.kv_heads, c.dim}, c.stored_dtype(),
                                c.layout);
  }
  static TestTensor scales(Context& ctx, const RotaryAppendCase& c) {
    const std::int64_t pages = (c.tokens + 1) / kPageSize + 1;
    return TestTensor::poisoned(ctx, {pages, c.kv_heads, kPageSize}, DType::f32, c.layout);
  }

  bool inputs_untouched() const {
    return q.untouched() && k.untouched() && v.untouched() && positions.untouched() &&
           inv_freq.untouched() && slots.untouched();
  }
  bool outputs_untouched() const {
    return q_out.untouched() && k_pages.untouched() && v_pages.untouched();
  }

  // x [tokens, heads, dim], rotated in float64.
  Array rotated(const TestTensor& x) const {
    Array batch = x.read();
    const std::vector<std::int64_t> shape = batch.shape;
    batch.shape = {1, shape[0], shape[1], shape[2]};
    Array out = reference::rotary(batch, positions.read(), inv_freq.read(), args.rope.style);
    out.shape = shape;
    return out;
  }
};

// The bound of rotary(): 2^-20 of elements below 4.5, and one rounding to the dtype.
testing::AssertionResult rotary_append_accurate(const Array& actual, const Array& expected,
                                                DType dtype) {
  const double rounding = dtype == DType::f32 ? 0.0 : 0.51 * epsilon(dtype);
  const double subnormal = dtype == DType::f16 ? 0x1p-25 : 0.0;
  return close(actual, expected, rounding, subnormal + 0x1p-20);
}

// The contents of the slots, [tokens, heads, dim].
Array in_slots(const Array& pages, const Array& slots) {
  Array out({slots.size(0), pages.size(2), pages.size(3)});
  for (std::int64_t token = 0; token < slots.size(0); ++token) {
    const auto slot = static_cast<std::int64_t>(slots.at(token));
    for (std::int64_t h = 0; h < pages.size(2); ++h) {
      for (std::int64_t d = 0; d < pages.size(3); ++d) {
        out.at(token, h, d) = pages.at(slot / kPageSize, slot % kPageSize, h, d);
      }
    }
  }
  return out;
}

// The same by the two ops that rotary_append() replaces.
void run_apart(Context& ctx, const RotaryAppendArgs& a, const Tensor& rotated_keys) {
  const auto rotate = [&](const Tensor& x, const Tensor& out) {
    const auto as_batch = [](const Tensor& t) {
      const std::int64_t shape[] = {1, t.shape[0], t.shape[1], t.shape[2]};
      const std::int64_t strides[] = {0, t.strides[0], t.strides[1], t.strides[2]};
      return Tensor(t.data, t.dtype, shape, strides, t.device);
    };
    rotary(ctx, {.x = as_batch(x), .positions = a.positions, .rope = a.rope, .out = as_batch(out)});
  };
  rotate(a.q, a.q_out);
  if (a.rotate_keys) rotate(a.k, rotated_keys);
  kv_append(ctx, {.k = a.rotate_keys ? rotated_keys : a.k,
                  .v = a.v,
                  .slots = a.slots,
                  .k_pages = a.k_pages,
                  .v_pages = a.v_pages,
                  .k_scales = a.k_scales,
                  .v_scales = a.v_scales});
}

void check_rotary_append(Context& ctx, const RotaryAppendCase& c) {
  SCOPED_TRACE(c.text());
  RotaryAppendCall call(ctx, c);
  const Array before = call.k_pages.read(), slots = call.slots.read();
  rotary_append(ctx, call.args);
  EXPECT_TRUE(rotary_append_accurate(call.q_out.read(), call.rotated(call.q), c.dtype));
  if (!has_scales(c.stored_dtype())) {  // else kv_append() has written them below
    const Array keys = c.rotate_keys ? call.rotated(call.k) : call.k.read();
    EXPECT_TRUE(
        rotary_append_accurate(in_slots(call.k_pages.read(), slots), keys, c.stored_dtype()));
    EXPECT_TRUE(identical(
        call.v_pages.read(),
        reference::kv_append(reference::rounded(call.v.read(), c.stored_dtype()), slots, before)));
  }
  EXPECT_TRUE(call.q_out.surroundings_intact() && call.k_pages.surroundings_intact() &&
              call.v_pages.surroundings_intact() && call.k_scales.surroundings_intact() &&
              call.v_scales.surroundings_intact());
  EXPECT_TRUE(call.inputs_untouched());

  RotaryAppendCall apart(ctx, c);
  const TestTensor keys_apart = TestTensor::poisoned(ctx, {c.tokens, c.kv_heads, c.dim}, c.dtype);
  run_apart(ctx, apart.args, keys_apart);
  EXPECT_TRUE(identical(call.q_out.read(), apart.q_out.read()));
  EXPECT_TRUE(identical(call.k_pages.read(), apart.k_pages.read()));
  EXPECT_TRUE(identical(call.v_pages.read(), apart.v_pages.read()));
  EXPECT_TRUE(identical(call.k_scales.read(), apart.k_scales.read()));
  EXPECT_TRUE(identical(call.v_scales.read(), apart.v_scales.read()));

  RotaryAppendCall in_place(ctx, c);
  in_place.args.q_out = in_place.q;
  rotary_append(ctx, in_place.args);
  EXPECT_TRUE(identical(in_place.q.read(), call.q_out.read()));
  EXPECT_TRUE(identical(in_place.k_pages.read(), call.k_pages.read()));
}

class RotaryAppendTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, RotaryAppendTest, testing::ValuesIn(test_devices()), device_name);

TEST_P(RotaryAppendTest, DtypesLayoutsAndStyles) {
  for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (Layout layout : kLayouts) {
      for (RopeStyle style : {RopeStyle::half_split, RopeStyle::interleaved}) {
        check_rotary_append(ctx(), {.style = style, .dtype = dtype, .layout = layout});
      }
      check_rotary_append(ctx(), {.dtype = dtype, .layout = layout, .rotate_keys = false});
    }
  }
}

TEST_P(RotaryAppendTest, F32IsStoredAsF16OrBf16OnTheCpu) {
  for (DType stored : {DType::f16, DType::bf16}) {
    for (bool rotate_keys : {true, false}) {
      const RotaryAppendCase c{.rotate_keys = rotate_keys, .stored = stored};
      if (GetParam().is_cpu()) {
        check_rotary_append(ctx(), c);
        continue;
      }
      RotaryAppendCall call(ctx(), c);
      EXPECT_TRUE(refuses([&] { rotary_append(ctx(), call.args); },
                          "rotary_append: k_pages is " + std::string(name(stored)) +
                              " and k is f32; on a GPU both must be of one dtype",
                          ErrorCode::unsupported));
      EXPECT_TRUE(call.outputs_untouched());
    }
  }
}

// attention_8bit_test.cc compares what kv_append() writes with the twin.
TEST_P(RotaryAppendTest, EightBitsAreThoseOfTheTwoOps) {
  for (DType stored : {DType::f8e4m3, DType::i8}) {
    for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (bool rotate_keys : {true, false}) {
        check_rotary_append(ctx(), {.dtype = dtype, .rotate_keys = rotate_keys, .stored = stored});
      }
      check_rotary_append(ctx(), {.style = RopeStyle::interleaved,
                                  .dtype = dtype,
                                  .layout = Layout::sliced,
                                  .stored = stored});
      check_rotary_append(ctx(), {.tokens = 5,
                                  .heads = 32,
                                  .kv_heads = 8,
                                  .dim = 128,
                                  .dims = 128,
                                  .dtype = dtype,
                                  .stored = stored});
    }
  }
}

// Heads as in models: 16-byte pieces that are rotated whole, in part or not at all; grouped heads;
// more heads than one token has blocks, and more tokens.
TEST_P(RotaryAppendTest, ShapesOfModels) {
  for (DType dtype : {DType::f32, DType::f16}) {
    check_rotary_append(
        ctx(), {.tokens = 1, .heads = 12, .kv_heads = 12, .dim = 64, .dims = 16, .dtype = dtype});
    check_rotary_append(
        ctx(), {.tokens = 2, .heads = 32, .kv_heads = 32, .dim = 80, .dims = 20, .dtype = dtype});
    check_rotary_append(
        ctx(), {.tokens = 5, .heads = 32, .kv_heads = 8, .dim = 128, .dims = 128, .dtype = dtype});
    check_rotary_append(
        ctx(), {.tokens = 300, .heads = 4, .kv_heads = 1, .dim = 32, .dims = 32, .dtype = dtype});
    check_rotary_append(ctx(), {.tokens = 3,
                                .heads = 2,
                                .kv_heads = 2,
                                .dim = 128,
                                .dims = 128,
                                .style = RopeStyle::interleaved,
                                .dtype = dtype,
                                .position_dtype = DType::i64});
    check_rotary_append(ctx(), {.tokens = 3,
                                .heads = 9,
                                .kv_heads = 3,
                                .dim = 64,
                                .dims = 64,
                                .dtype = dtype,
                                .rotate_keys = false});
  }
  check_rotary_append(ctx(), {.tokens = 2, .heads = 1, .kv_heads = 1, .dim = 2, .dims = 2});
  check_rotary_append(ctx(), {.tokens = 2, .heads = 1, .kv_heads = 1, .dim = 2100, .dims = 2080});
}

// As in a model: parts of the rows of one product.
TEST_P(RotaryAppendTest, QueriesKeysAndValuesAreViewsOfOneRow) {
  const RotaryAppendCase c{.tokens = 9, .heads = 4, .kv_heads = 4, .dim = 16, .dims = 8};
  const TestTensor qkv(ctx(), random_normal({9, 4, 3, 16}, 5), DType::f32);
  RotaryAppendCall call(ctx(), c), apart(ctx(), c);
  const TestTensor keys = TestTensor::poisoned(ctx(), {9, 4, 16}, DType::f32);
  for (RotaryAppendCall* one : {&call, &apart}) {
    one->args.q = qkv.view().select(2, 0);
    one->args.k = qkv.view().select(2, 1);
    one->args.v = qkv.view().select(2, 2);
  }
  rotary_append(ctx(), call.args);
  run_apart(ctx(), apart.args, keys);
  EXPECT_TRUE(identical(call.q_out.read(), apart.q_out.read()));
  EXPECT_TRUE(identical(call.k_pages.read(), apart.k_pages.read()));
  EXPECT_TRUE(identical(call.v_pages.read(), apart.v_pages.read()));
}

TEST_P(RotaryAppendTest, SlotsOutOfRange) {
  for (const double bad : {-1.0, 9.0}) {
    Array slots = falling_slots(7);
    slots.at(4) = bad;
    RotaryAppendCall call(ctx(), {}, slots), apart(ctx(), {}, slots);
    if (GetParam().is_cpu()) {
      EXPECT_TRUE(refuses([&] { rotary_append(ctx(), call.args); },
                          "rotary_append: slots[4] is " +
                              std::to_string(static_cast<std::int64_t>(bad)) +
                              "; 3 pages of 3 tokens have the slots 0..8"));
      EXPECT_TRUE(call.outputs_untouched());
    } else {  // that token's keys and values are dropped, everything else is written
      const TestTensor keys = TestTensor::poisoned(ctx(), {7, 3, 20}, DType::f32);
      rotary_append(ctx(), call.args);
      run_apart(ctx(), apart.args, keys);
      EXPECT_TRUE(identical(call.q_out.read(), apart.q_out.read()));
      EXPECT_TRUE(identical(call.k_pages.read(), apart.k_pages.read()));
      EXPECT_TRUE(identical(call.v_pages.read(), apart.v_pages.read()));
      EXPECT_TRUE(call.k_pages.surroundings_intact() && call.v_pages.surroundings_intact());
    }
  }
}

TEST_P(RotaryAppendTest, RefusesWrongArguments) {
  std::vector<Refusal<RotaryAppendArgs>> refusals{
      {[](RotaryAppendArgs& a) { a.q = {}; }, "rotary_append: q was not given"},
      {[](RotaryAppendArgs& a) { a.k = a.k.slice(0, 0, 6); },
       "rotary_append: k must have shape [7, any, 20], got f32[6, 3, 20]"},
      {[](RotaryAppendArgs& a) { a.v = a.v.slice(1, 0, 2); },
       "rotary_append: v must have the shape of k, f32[7, 3, 20], got f32[7, 2, 20] with strides "
       "[60, 20, 1]"},
      {[](RotaryAppendArgs& a) { a.positions = a.positions.slice(0, 0, 6); },
       "rotary_append: positions must have shape [7], got i32[6]"},
      {[](RotaryAppendArgs& a) { a.rope = {}; }, "rotary_append: rope.inv_freq was not given"},
      {[](RotaryAppendArgs& a) { a.q_out = a.q_out.slice(1, 0, 5); },
       "rotary_append: q_out must have the shape of q, f32[7, 6, 20], got f32[7, 5, 20] with "
       "strides [120, 20, 1]"},
      {[](RotaryAppendArgs& a) { a.v_pages = a.k_pages; },
       "rotary_append: k_pages overlaps the memory of v_pages"},
      {[](RotaryAppendArgs& a) {
         a.q = a.v;
         a.q_out = a.k;
       },
       "rotary_append: q_out overlaps the memory of k"},
  };
  for (const auto& [spoil, text, code] : refusals) {
    RotaryAppendCall call(ctx(), {});
    spoil(call.args);
    EXPECT_TRUE(refuses([&] { rotary_append(ctx(), call.args); }, text, code));
    EXPECT_TRUE(call.outputs_untouched());
  }
}

TEST_P(RotaryAppendTest, NegativePositionsAreRefusedOnTheCpu) {
  if (!GetParam().is_cpu()) GTEST_SKIP() << "positions are not read on a GPU";
  RotaryAppendCall call(ctx(), {});
  Array at = random_integers({7}, 4, 0, 5000);
  at.at(3) = -2;
  const TestTensor positions(ctx(), at, DType::i32);
  call.args.positions = positions;
  EXPECT_TRUE(refuses([&] { rotary_append(ctx(), call.args); },
                      "rotary_append: positions[3] is -2; a position must be at least 0"));
  EXPECT_TRUE(call.outputs_untouched());
}

TEST_P(RotaryAppendTest, NoTokensAreNoWorkAndCallsAreTraced) {
  RotaryAppendCall none(ctx(), {.tokens = 0});
  rotary_append(ctx(), none.args);
  EXPECT_TRUE(none.outputs_untouched());
  RotaryAppendCall call(ctx(), {});
  rotary_append(ctx(), call.args);
  EXPECT_EQ(ctx().trace().calls("rotary_append", GetParam().is_cpu() ? "cpu" : "cuda"), 2);
  const TraceEntry& entry = ctx().trace().entries().back();
  EXPECT_EQ(entry.shapes, "q f32[7, 6, 20] k f32[7, 3, 20]");
  EXPECT_EQ(entry.bytes, 2 * 7 * (6 + 3 + 3) * 20 * 4 + 7 * 4 + 7 * 4 + 5 * 4);
  EXPECT_EQ(entry.flops, 3 * 7 * (6 + 3) * 10);
}

}  // namespace
}  // namespace tessera::test
