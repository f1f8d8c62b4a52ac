#include "tessera/embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "reference/embedding.h"
#include "reference/rounding.h"
#include "reference/test_tensor.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/refusal.h"
#include "support/simd_targets.h"

namespace tessera::test {
namespace {

constexpr DType kFloats[] = {DType::f32, DType::f16, DType::bf16};
constexpr std::int64_t kRows = 50;

struct Case {
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

struct Call {
  TestTensor ids, table, out;
  EmbeddingArgs args;

  Call(Context& ctx, const Case& c) : Call(ctx, c, random_integers(c.ids_shape, 1, 0, kRows)) {}
  Call(Context& ctx, const Case& c, const Array& id_values)
      : ids(ctx, id_values, c.id_dtype, c.layout),
        table(ctx, random_normal({kRows, c.n}, 2), c.table_dtype, c.layout),
        out(TestTensor::poisoned(ctx, c.out_shape(), c.out_dtype, c.layout)),
        args{ids, table, out} {}
};

// The result is a copy, or each value rounded once, so it must match bit for bit.
void check(Context& ctx, const Case& c) {
  SCOPED_TRACE(c.text());
  Call call(ctx, c);
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
  for (std::int64_t n : {1, 3, 7, 16, 113, 239, 1023}) check(ctx(), {.n = n});
  for (const std::vector<std::int64_t>& ids_shape :
       std::vector<std::vector<std::int64_t>>{{1}, {7}, {61, 3}, {2, 3, 4}, {2, 1, 3, 2, 2}}) {
    check(ctx(), {.ids_shape = ids_shape, .layout = Layout::permuted});
  }
}

TEST_P(EmbeddingTest, DtypesAndLayouts) {
  for (DType table_dtype : kFloats) {
    for (DType out_dtype : kFloats) {
      for (Layout layout : kLayouts) {
        for (DType id_dtype : {DType::i32, DType::i64}) {
          check(ctx(), {.table_dtype = table_dtype,
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
  ids.data = {0, kRows - 1};
  Call call(ctx(), {.ids_shape = {2}, .n = 5}, ids);
  embedding(ctx(), call.args);
  const Array table = call.table.read(), out = call.out.read();
  for (std::int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(out.at(0, i), table.at(0, i));
    EXPECT_EQ(out.at(1, i), table.at(kRows - 1, i));
  }
}

TEST_P(EmbeddingTest, IdsOutOfRange) {
  for (const double bad : {-1.0, double{kRows}, 2000000000.0}) {
    Array ids = random_integers({2, 3}, 1, 0, kRows);
    ids.at(1, 2) = bad;
    Call call(ctx(), {.n = 7}, ids);
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

TEST_P(EmbeddingTest, SameBitsForAnyThreadCount) {
  const Case c{.ids_shape = {200}, .n = 799, .out_dtype = DType::bf16};
  const auto one = context(1), three = context(3);
  Call a(*one, c), b(*three, c);
  embedding(*one, a.args);
  embedding(*three, b.args);
  EXPECT_TRUE(identical(a.out.read(), b.out.read()));
}

TEST_P(EmbeddingTest, EmptyTensorsAreNoWork) {
  for (const Case& c : {Case{.ids_shape = {0}}, Case{.ids_shape = {3, 0}}, Case{.n = 0}}) {
    Call call(ctx(), c);
    embedding(ctx(), call.args);
    EXPECT_TRUE(call.out.untouched());
  }
}

TEST_P(EmbeddingTest, IsTraced) {
  Call call(ctx(), {.n = 8, .table_dtype = DType::f16});
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
      {[](EmbeddingArgs& a) { a.table.dtype = DType::u8; },
       "embedding: table is u8; accepted: f32, f16, bf16"},
      {[](EmbeddingArgs& a) { a.table.device = Device::cuda(7); },
       "embedding: table is on cuda:7, but the context runs on " + here},
      {[](EmbeddingArgs& a) {
         a.table = a.table.view({5, 10, 113});
       },
       "embedding: table must have shape [any, any], got f32[5, 10, 113]"},
      {[](EmbeddingArgs& a) { a.table.strides[0] = std::numeric_limits<std::int64_t>::max(); },
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
      {[](EmbeddingArgs& a) { a.out.data = a.table.data; },
       "embedding: out overlaps the memory of table"},
  };
  for (const Refusal<EmbeddingArgs>& refusal : refusals) {
    SCOPED_TRACE(refusal.text);
    Call call(ctx(), {});
    refusal.spoil(call.args);
    EXPECT_TRUE(refuses([&] { embedding(ctx(), call.args); }, refusal.text, refusal.code));
    for (const TestTensor* tensor : {&call.ids, &call.table, &call.out}) {
      EXPECT_TRUE(tensor->untouched());
    }
  }
  EXPECT_TRUE(ctx().trace().entries().empty());
}

TEST(EmbeddingSimd, EveryTarget) {
  Context ctx({.threads = 2});
  on_every_simd_target([&] {
    for (DType table_dtype : kFloats) {
      for (DType out_dtype : kFloats) {
        for (std::int64_t n : {1, 16, 113}) {
          check(ctx, {.n = n,
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
