#include "tessera/embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/workspace.h"
#include "reference/embedding.h"
#include "reference/rounding.h"
#include "reference/test_tensor.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/linear_case.h"
#include "support/refusal.h"
#include "support/simd_targets.h"

namespace tessera::test {
namespace {

constexpr std::int64_t kTableRows = 50;

struct EmbeddingCase {
  std::vector<std::int64_t> ids_shape = {2, 3};
  std::int64_t n = 113;
  DType table_dtype = DType::f32;
  DType out_dtype = DType::f32;
  DType id_dtype = DType::i32;
  Layout layout = Layout::contiguous;

  std::string text() const {
    return testing::PrintToString(ids_shape) + " n " + std::to_string(n) + " " +
           std::string(name(table_dtype)) + " to " + std::string(name(out_dtype)) + " by " +
           std::string(name(id_dtype)) + " " + to_string(layout);
  }
  std::vector<std::int64_t> out_shape() const {
    std::vector<std::int64_t> shape = ids_shape;
    shape.push_back(n);
    return shape;
  }
};

struct EmbeddingCall {
  TestTensor ids, table, out;
  EmbeddingArgs args;

  EmbeddingCall(Context& ctx, const EmbeddingCase& c)
      : EmbeddingCall(ctx, c, random_integers(c.ids_shape, 1, 0, kTableRows)) {}
  EmbeddingCall(Context& ctx, const EmbeddingCase& c, const Array& id_values)
      : ids(ctx, id_values, c.id_dtype, c.layout),
        table(ctx, random_normal({kTableRows, c.n}, 2), c.table_dtype, c.layout),
        out(TestTensor::poisoned(ctx, c.out_shape(), c.out_dtype, c.layout)),
        args{ids, Weight::dense(table), out} {}
};

// The result is a copy, or each value rounded once, so it must match bit for bit.
void check_embedding(Context& ctx, const EmbeddingCase& c) {
  SCOPED_TRACE(c.text());
  EmbeddingCall call(ctx, c);
  embedding(ctx, call.args);
  const Array expected = reference::embedding(call.ids.read(), call.table.read());
  EXPECT_TRUE(identical(call.out.read(), reference::rounded(expected, c.out_dtype)));
  EXPECT_TRUE(call.out.surroundings_intact());
  EXPECT_TRUE(call.ids.untouched());
  EXPECT_TRUE(call.table.untouched());
}

class EmbeddingTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, EmbeddingTest, testing::ValuesIn(test_devices()), device_name);

TEST_P(EmbeddingTest, OddSizesAndRanks) {
  for (std::int64_t n : {1, 3, 7, 16, 113, 239, 1023}) check_embedding(ctx(), {.n = n});
  for (const std::vector<std::int64_t>& ids_shape :
       std::vector<std::vector<std::int64_t>>{{1}, {7}, {61, 3}, {2, 3, 4}, {2, 1, 3, 2, 2}}) {
    check_embedding(ctx(), {.ids_shape = ids_shape, .layout = Layout::permuted});
  }
}

TEST_P(EmbeddingTest, DtypesAndLayouts) {
  for (DType table_dtype : kFloats) {
    for (DType out_dtype : kFloats) {
      for (Layout layout : kLayouts) {
        for (DType id_dtype : {DType::i32, DType::i64}) {
          check_embedding(ctx(), {.table_dtype = table_dtype,
                                  .out_dtype = out_dtype,
                                  .id_dtype = id_dtype,
                                  .layout = layout});
        }
      }
    }
  }
}

TEST_P(EmbeddingTest, FirstAndLastRow) {
  Array ids({2});
  ids.data = {0, kTableRows - 1};
  EmbeddingCall call(ctx(), {.ids_shape = {2}, .n = 5}, ids);
  embedding(ctx(), call.args);
  const Array table = call.table.read(), out = call.out.read();
  for (std::int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(out.at(0, i), table.at(0, i));
    EXPECT_EQ(out.at(1, i), table.at(kTableRows - 1, i));
  }
}

// A table that is spread over processes: the parts add up to the rows of the whole.
TEST_P(EmbeddingTest, PartsOfATableGiveZerosForOtherRows) {
  const std::int64_t first = 17, end = 31;
  for (const bool packed : {false, true}) {
    Array some({2, 3});
    some.data = {0, 17, 30, 31, 49, 20};
    EmbeddingCall call(ctx(), {.n = 64}, some);
    const Tensor part = call.table.view().slice(0, first, end);
    const PackedWeight weight =
        packed ? quantize(ctx(), part, {.format = Format::int8}) : PackedWeight{};
    call.args.table = packed ? weight.weight : Weight::dense(part);
    call.args.first_row = first;
    call.args.all_rows = kTableRows;
    embedding(ctx(), call.args);
    const Array ids = call.ids.read(), table = call.table.read(), out = call.out.read();
    for (std::int64_t i = 0; i < 6; ++i) {
      const auto id = static_cast<std::int64_t>(ids.data[static_cast<std::size_t>(i)]);
      const bool is_own = id >= first && id < end;
      for (std::int64_t k = 0; k < 64; ++k) {
        const double got = out.data[static_cast<std::size_t>(i * 64 + k)];
        EXPECT_NEAR(got, is_own ? table.at(id, k) : 0.0, packed ? 0.05 : 0.0);
      }
    }
    call.args.all_rows = end - 1;
    EXPECT_TRUE(refuses([&] { embedding(ctx(), call.args); },
                        "embedding: a table of 14 rows from row 17 on does not lie in 30 rows"));
  }
}

TEST_P(EmbeddingTest, IdsOutOfRange) {
  for (const double bad : {-1.0, double{kTableRows}, 2000000000.0}) {
    Array ids = random_integers({2, 3}, 1, 0, kTableRows);
    ids.at(1, 2) = bad;
    EmbeddingCall call(ctx(), {.n = 7}, ids);
    if (GetParam().is_cpu()) {
      EXPECT_TRUE(
          refuses([&] { embedding(ctx(), call.args); },
                  "embedding: ids[1, 2] is " + std::to_string(static_cast<std::int64_t>(bad)) +
                      ", but table has 50 rows: an id must be at least 0 and less than that"));
      EXPECT_TRUE(call.out.untouched());
    } else {  // reporting it would mean waiting: the row is NaN, the others are right
      embedding(ctx(), call.args);
      ids.at(1, 2) = 0;
      Array expected = reference::embedding(ids, call.table.read());
      for (std::int64_t i = 0; i < 7; ++i) expected.at(1, 2, i) = NAN;
      EXPECT_TRUE(identical(call.out.read(), expected));
      EXPECT_TRUE(call.out.surroundings_intact());
    }
  }
}

// Names of tokens that were drawn: -1 - k stands for drawn[k].
TEST_P(EmbeddingTest, IdsMayStandForDrawnOnes) {
  Array drawn_ids({3}), ids({5}), resolved({5});
  drawn_ids.data = {7, 0, kTableRows - 1};
  ids.data = {-1, 4, -3, -2, -1};
  resolved.data = {7, 4, kTableRows - 1, 0, 7};
  for (const DType id_dtype : {DType::i32, DType::i64}) {
    EmbeddingCall call(ctx(), {.ids_shape = {5}, .n = 9, .id_dtype = id_dtype}, ids);
    const TestTensor drawn(ctx(), drawn_ids, DType::i32, Layout::contiguous);
    call.args.drawn = drawn;
    embedding(ctx(), call.args);
    EXPECT_TRUE(identical(call.out.read(), reference::embedding(resolved, call.table.read())));
    EXPECT_TRUE(drawn.untouched());
  }
}

TEST_P(EmbeddingTest, NamesThatStandForNothing) {
  Array drawn_ids({2}), ids({2});
  drawn_ids.data = {-1, 3};  // no token could be drawn
  for (const double bad : {-1.0, -3.0}) {
    ids.data = {-2, bad};
    EmbeddingCall call(ctx(), {.ids_shape = {2}, .n = 4}, ids);
    const TestTensor drawn(ctx(), drawn_ids, DType::i32, Layout::contiguous);
    call.args.drawn = drawn;
    if (GetParam().is_cpu()) {
      EXPECT_TRUE(refuses([&] { embedding(ctx(), call.args); },
                          "embedding: ids[1] is " + std::to_string(static_cast<int>(bad)) +
                              ", but table has 50 rows: an id must be at least 0 and less than "
                              "that"));
    } else {
      embedding(ctx(), call.args);
      const Array out = call.out.read(), table = call.table.read();
      for (std::int64_t i = 0; i < 4; ++i) {
        EXPECT_EQ(out.at(0, i), table.at(3, i));
        EXPECT_TRUE(std::isnan(out.at(1, i)));
      }
    }
  }
}

TEST_P(EmbeddingTest, SameBitsForAnyThreadCount) {
  const EmbeddingCase c{.ids_shape = {200}, .n = 799, .out_dtype = DType::bf16};
  const auto one = context(1), three = context(3);
  EmbeddingCall a(*one, c), b(*three, c);
  embedding(*one, a.args);
  embedding(*three, b.args);
  EXPECT_TRUE(identical(a.out.read(), b.out.read()));
}

TEST_P(EmbeddingTest, EmptyTensorsAreNoWork) {
  for (const EmbeddingCase& c : {EmbeddingCase{.ids_shape = {0}},
                                 EmbeddingCase{.ids_shape = {3, 0}}, EmbeddingCase{.n = 0}}) {
    EmbeddingCall call(ctx(), c);
    embedding(ctx(), call.args);
    EXPECT_TRUE(call.out.untouched());
  }
}

TEST_P(EmbeddingTest, IsTraced) {
  EmbeddingCall call(ctx(), {.n = 8, .table_dtype = DType::f16});
  embedding(ctx(), call.args);
  ASSERT_EQ(ctx().trace().calls("embedding", GetParam().is_cpu() ? "cpu" : "cuda"), 1);
  const TraceEntry& entry = ctx().trace().entries().front();
  EXPECT_EQ(entry.shapes, "ids i32[2, 3] table f16[50, 8]");
  EXPECT_EQ(entry.bytes, 6 * 4 + 6 * 8 * 2 + 6 * 8 * 4);
}

TEST_P(EmbeddingTest, RefusesBeforeWriting) {
  const std::string here = to_string(GetParam());
  const std::vector<Refusal<EmbeddingArgs>> refusals = {
      {[](EmbeddingArgs& a) { a.ids = {}; }, "embedding: ids was not given"},
      {[](EmbeddingArgs& a) { a.ids.dtype = DType::f32; },
       "embedding: ids is f32; accepted: i32, i64"},
      {[](EmbeddingArgs& a) { a.ids.data = nullptr; },
       "embedding: ids i32[2, 3] has no data (null pointer)"},
      {[](EmbeddingArgs& a) { a.ids.data = a.ids.ptr<char>() + 1; },
       "embedding: ids i32[2, 3] is not aligned to its 4-byte elements"},
      {[](EmbeddingArgs& a) { a.table = {}; }, "embedding: table was not given"},
      {[](EmbeddingArgs& a) { a.table.data.dtype = DType::u8; },
       "embedding: table.data is u8; accepted: f32, f16, bf16"},
      {[](EmbeddingArgs& a) { a.table.data.device = Device::cuda(7); },
       "embedding: table.data is on cuda:7, but the context runs on " + here},
      {[](EmbeddingArgs& a) {
         a.table.data = a.table.data.view({5, 10, 113});
       },
       "embedding: table.data must have shape [50, 113], got f32[5, 10, 113]"},
      {[](EmbeddingArgs& a) { a.table.data.strides[0] = std::numeric_limits<std::int64_t>::max(); },
       "size 49 x 9223372036854775807 does not fit into 64 bits", ErrorCode::overflow},
      {[](EmbeddingArgs& a) { a.out = {}; }, "embedding: out was not given"},
      {[](EmbeddingArgs& a) { a.out.dtype = DType::i32; },
       "embedding: out is i32; accepted: f32, f16, bf16"},
      {[](EmbeddingArgs& a) {
         a.out = a.out.view({6, 113});
       },
       "embedding: out must have the shape of ids i32[2, 3] followed by the 113 columns of table, "
       "got f32[6, 113]"},
      {[](EmbeddingArgs& a) { a.out = a.out.slice(2, 0, 112); },
       "embedding: out must have the shape of ids i32[2, 3] followed by the 113 columns of table, "
       "got f32[2, 3, 112] with strides [339, 113, 1]"},
      {[](EmbeddingArgs& a) { a.out.strides[0] = 0; },
       "embedding: out reaches an element more than once: f32[2, 3, 113] with strides [0, 113, "
       "1]"},
      {[](EmbeddingArgs& a) { a.out.data = a.table.data.data; },
       "embedding: out overlaps the memory of table"},
  };
  for (const Refusal<EmbeddingArgs>& refusal : refusals) {
    SCOPED_TRACE(refusal.text);
    EmbeddingCall call(ctx(), {});
    refusal.spoil(call.args);
    EXPECT_TRUE(refuses([&] { embedding(ctx(), call.args); }, refusal.text, refusal.code));
    for (const TestTensor* tensor : {&call.ids, &call.table, &call.out}) {
      EXPECT_TRUE(tensor->untouched());
    }
  }
  EXPECT_TRUE(ctx().trace().entries().empty());
}

// ---- packed tables ------------------------------------------------------------------------------

struct PackedCall {
  TestTensor ids;
  TestWeight table;
  TestTensor out;
  EmbeddingArgs args;

  PackedCall(Context& ctx, const WeightCase& how, const Array& id_values, std::int64_t n,
             DType out_dtype, Layout layout)
      : ids(ctx, id_values, DType::i32, layout),
        table(ctx, how, kTableRows, n, layout),
        out(TestTensor::poisoned(ctx, {id_values.size(0), id_values.size(1), n}, out_dtype,
                                 layout)),
        args{ids, table.weight(), out} {}
};

// Near float64: two products that are rounded to f32. And the same bits as dequantize() gives.
void check_packed(Context& ctx, const WeightCase& how, std::int64_t n, DType out_dtype,
                  Layout layout) {
  SCOPED_TRACE(how.text() + " n " + std::to_string(n) + " to " + std::string(name(out_dtype)));
  PackedCall call(ctx, how, random_integers({5, 3}, 1, 0, kTableRows), n, out_dtype, layout);
  embedding(ctx, call.args);
  const Array ids = call.ids.read(), actual = call.out.read();
  const Array exact = reference::embedding(ids, call.table.values());
  Array bound = exact;
  for (double& value : bound.data) value = std::abs(value) * 0x1p-23 + 0x1p-149;
  EXPECT_TRUE(within(actual, exact, bound, out_dtype));

  WeightCase published = how;
  published.prepared = false;
  const TestWeight same(ctx, published, kTableRows, n);
  const TestTensor decoded = TestTensor::poisoned(ctx, {kTableRows, n}, DType::f32);
  dequantize(ctx, same.weight(), decoded);
  EXPECT_TRUE(
      identical(actual, reference::rounded(reference::embedding(ids, decoded.read()), out_dtype)));
  EXPECT_TRUE(call.out.surroundings_intact());
  EXPECT_TRUE(call.ids.untouched());
  EXPECT_TRUE(call.table.untouched());
}

TEST_P(EmbeddingTest, EveryFormatPublishedAndPrepared) {
  for (const WeightCase& how : every_weight()) {
    for (std::int64_t n : {1, 7, 64, 113, 239}) {
      check_packed(ctx(), how, n, DType::f32, Layout::contiguous);
    }
    for (DType out_dtype : kFloats) check_packed(ctx(), how, 113, out_dtype, Layout::sliced);
  }
}

TEST_P(EmbeddingTest, PackedRowsOutOfRange) {
  for (const bool prepared : {false, true}) {
    Array ids = random_integers({2, 3}, 1, 0, kTableRows);
    ids.at(1, 2) = kTableRows;
    PackedCall call(ctx(), {.packed = {{.format = Format::nvfp4}}, .prepared = prepared}, ids, 7,
                    DType::f32, Layout::contiguous);
    if (GetParam().is_cpu()) {
      EXPECT_TRUE(refuses([&] { embedding(ctx(), call.args); },
                          "embedding: ids[1, 2] is 50, but table has 50 rows: an id must be at "
                          "least 0 and less than that"));
      EXPECT_TRUE(call.out.untouched());
    } else {
      embedding(ctx(), call.args);
      const Array out = call.out.read();
      EXPECT_TRUE(std::isnan(out.at(1, 2, 6)));
      EXPECT_FALSE(std::isnan(out.at(1, 1, 6)));
    }
  }
}

TEST_P(EmbeddingTest, PackedTablesAreTracedWithTheirFormat) {
  PackedCall call(ctx(), {.packed = {{.format = Format::int8}}}, random_integers({2, 3}, 1, 0, 50),
                  8, DType::f32, Layout::contiguous);
  ctx().trace().clear();
  embedding(ctx(), call.args);
  const TraceEntry& entry = ctx().trace().entries().front();
  EXPECT_EQ(entry.shapes, "ids i32[2, 3] table int8[50, 8]");
  EXPECT_EQ(entry.bytes, 6 * 4 + 6 * (8 + 4) + 6 * 8 * 4);  // a row: its codes and its scale
}

// A step of a stream allocates nothing: the rows' scratch memory is counted before.
TEST(EmbeddingScratch, IsCounted) {
  Context ctx({.threads = 2});
  PackedCall call(ctx, {.packed = {{.format = Format::int4, .zero_point = true}}, .prepared = true},
                  random_integers({2, 3}, 1, 0, kTableRows), 113, DType::f32, Layout::contiguous);
  std::int64_t counted = 0;
  {
    const Workspace::Count count(ctx.workspace());
    embedding(ctx, call.args);
    counted = count.peak_bytes();
  }
  EXPECT_TRUE(call.out.untouched());
  EXPECT_GE(counted, 2 * 113 * 4);
  ctx.workspace().reset_peak();
  embedding(ctx, call.args);
  EXPECT_EQ(ctx.workspace_peak_bytes(), counted);
}

TEST(EmbeddingSimd, EveryTarget) {
  Context ctx({.threads = 2});
  on_every_simd_target([&] {
    for (DType table_dtype : kFloats) {
      for (DType out_dtype : kFloats) {
        for (std::int64_t n : {1, 16, 113}) {
          check_embedding(ctx, {.n = n,
                                .table_dtype = table_dtype,
                                .out_dtype = out_dtype,
                                .layout = Layout::sliced});
        }
      }
    }
  });
}

}  // namespace
}  // namespace tessera::test
