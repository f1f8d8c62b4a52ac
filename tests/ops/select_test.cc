#include "tessera/select.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "reference/select.h"
#include "reference/test_tensor.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/refusal.h"
#include "support/simd_targets.h"

namespace tessera::test {
namespace {

struct SelectCase {
  std::vector<std::int64_t> shape = {2, 3, 113};
  std::int64_t k = 5;
  DType dtype = DType::f32;
  DType index_dtype = DType::i32;
  Layout layout = Layout::contiguous;

  std::string text() const {
    return testing::PrintToString(shape) + " k " + std::to_string(k) + " " +
           std::string(name(dtype)) + " indices " + std::string(name(index_dtype)) + " " +
           to_string(layout);
  }
  std::vector<std::int64_t> top_shape() const {
    std::vector<std::int64_t> top = shape;
    top.back() = k;
    return top;
  }
  std::vector<std::int64_t> argmax_shape() const {
    if (shape.size() == 1) return {1};
    return {shape.begin(), shape.end() - 1};
  }
};

struct SelectCall {
  TestTensor x, largest, values, indices;
  ArgmaxArgs argmax_args;
  TopKArgs top_args;

  SelectCall(Context& ctx, const SelectCase& c) : SelectCall(ctx, c, random_normal(c.shape, 1)) {}
  SelectCall(Context& ctx, const SelectCase& c, const Array& elements)
      : x(ctx, elements, c.dtype, c.layout),
        largest(TestTensor::poisoned(ctx, c.argmax_shape(), c.index_dtype, c.layout)),
        values(TestTensor::poisoned(ctx, c.top_shape(), c.dtype, c.layout)),
        indices(TestTensor::poisoned(ctx, c.top_shape(), c.index_dtype, c.layout)),
        argmax_args{x, largest},
        top_args{x, values, indices} {}
};

// Elements are only compared, never computed, so the result is exact.
void check_select(Context& ctx, const SelectCase& c, const Array& elements) {
  SCOPED_TRACE(c.text());
  SelectCall call(ctx, c, elements);
  top_k(ctx, call.top_args);
  const reference::Selected expected = reference::top_k(call.x.read(), c.k);
  EXPECT_TRUE(identical(call.values.read(), expected.values));
  EXPECT_TRUE(identical(call.indices.read(), expected.indices));
  EXPECT_TRUE(call.values.surroundings_intact());
  EXPECT_TRUE(call.indices.surroundings_intact());

  argmax(ctx, call.argmax_args);
  Array first = reference::top_k(call.x.read(), 1).indices;
  first.shape = c.argmax_shape();
  EXPECT_TRUE(identical(call.largest.read(), first));
  EXPECT_TRUE(call.largest.surroundings_intact());
  EXPECT_TRUE(call.x.untouched());
}

void check_select(Context& ctx, const SelectCase& c) {
  check_select(ctx, c, random_normal(c.shape, 1));
}

class SelectTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, SelectTest, testing::ValuesIn(test_devices()), device_name);

TEST_P(SelectTest, OddSizes) {
  for (std::int64_t n : {1, 2, 3, 7, 16, 31, 113, 239, 1023}) {
    for (std::int64_t k : {std::int64_t{1}, std::int64_t{2}, std::int64_t{17}, n / 2, n}) {
      if (k > 0 && k <= n) check_select(ctx(), {.shape = {3, n}, .k = k});
    }
  }
}

TEST_P(SelectTest, DtypesAndLayouts) {
  for (DType dtype : kFloats) {
    for (DType index_dtype : {DType::i32, DType::i64}) {
      for (Layout layout : kLayouts) {
        check_select(ctx(), {.dtype = dtype, .index_dtype = index_dtype, .layout = layout});
      }
    }
  }
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{7}, {1, 7}, {4, 3, 2, 7}, {2, 1, 2, 1, 3, 7}}) {
    check_select(ctx(), {.shape = shape, .k = 3, .layout = Layout::permuted});
  }
}

TEST_P(SelectTest, AVocabulary) {
  const std::vector<std::int64_t> shape = {2, 128256};
  for (std::int64_t k : {1, 50})
    check_select(ctx(), {.shape = shape, .k = k, .dtype = DType::bf16});
}

// The largest elements crowd where that is hard on a GPU's threads: next to each other, all in the
// elements of few threads (every 1024th piece of 16 bytes), or far more of one value than were
// asked for.
TEST_P(SelectTest, CrowdedElements) {
  constexpr std::int64_t kWidth = 40000;
  Array together({1, kWidth}), apart({1, kWidth}), equal({1, kWidth}, 1.0);
  for (std::int64_t i = 0; i < kWidth; ++i) {
    together.at(0, i) = i < kWidth / 2 ? static_cast<double>(i) : -static_cast<double>(i);
    apart.at(0, i) = i / 4 % 1024 < 3 ? static_cast<double>(i) : -static_cast<double>(i);
  }
  for (std::int64_t k : {1, 3, 50}) {
    for (const Array* elements : {&together, &apart, &equal}) {
      check_select(ctx(), {.shape = {1, kWidth}, .k = k}, *elements);
    }
  }
  check_select(ctx(),
               {.shape = {1, kWidth}, .k = 300, .dtype = DType::f16, .index_dtype = DType::i64},
               together);
  check_select(ctx(), {.shape = {1, 2000}, .k = 1024});
  check_select(ctx(), {.shape = {1, 1500}, .k = 1025});
}

// The shortest row that a GPU cuts into parts. The last part has one element, and the other parts'
// blocks have fewer threads than k. compute-sanitizer runs it: longer rows and a larger k take it
// minutes.
TEST_P(SelectTest, RowsInParts) {
  constexpr std::int64_t kWidth = 3 * 4096 + 1;
  check_select(ctx(), {.shape = {1, kWidth}, .k = 3});
  check_select(ctx(),
               {.shape = {1, kWidth}, .k = 300, .dtype = DType::f16, .index_dtype = DType::i64});
}

// With few distinct values, nearly everything is a tie.
TEST_P(SelectTest, TiesGoToTheLowerIndex) {
  for (std::int64_t n : {5, 16, 113, 1023}) {
    const Array few = random_integers({4, n}, 3, -1, 2);
    for (std::int64_t k : {1, 5}) check_select(ctx(), {.shape = {4, n}, .k = k}, few);
    check_select(ctx(), {.shape = {4, n}, .k = n}, Array({4, n}, -7.0));
  }
}

TEST_P(SelectTest, RisingAndFallingRows) {
  Array values({2, 500});
  for (std::int64_t i = 0; i < 500; ++i) {
    values.at(0, i) = static_cast<double>(i);
    values.at(1, i) = static_cast<double>(-i);
  }
  for (std::int64_t k : {1, 3, 100, 500}) check_select(ctx(), {.shape = {2, 500}, .k = k}, values);
}

// Every special element in every place of a row longer than a vector, alone and beside its kind.
TEST_P(SelectTest, SpecialElements) {
  constexpr std::int64_t kN = 39;
  for (DType dtype : kFloats) {
    for (double special : {-HUGE_VAL, HUGE_VAL, std::nan("")}) {
      Array values = random_normal({kN, kN}, 4);
      for (std::int64_t i = 0; i < kN; ++i) {
        values.at(i, i) = special;
        if (i % 2 == 0) values.at(i, (i * 7 + 3) % kN) = special;
      }
      check_select(ctx(), {.shape = {kN, kN}, .k = 4, .dtype = dtype}, values);
      check_select(ctx(), {.shape = {2, kN}, .k = kN, .dtype = dtype}, Array({2, kN}, special));
    }
  }
  Array zeros({1, 6});
  zeros.data = {-1, -0.0, 0.0, -0.0, 0.0, -1};  // both zeros are the same value
  check_select(ctx(), {.shape = {1, 6}, .k = 3}, zeros);
}

TEST_P(SelectTest, NanComesBeforeInfinity) {
  Array values({1, 5});
  values.data = {INFINITY, 1, NAN, INFINITY, NAN};
  SelectCall call(ctx(), {.shape = {1, 5}, .k = 3}, values);
  top_k(ctx(), call.top_args);
  argmax(ctx(), call.argmax_args);
  EXPECT_EQ(call.indices.read().data, (std::vector<double>{2, 4, 0}));
  EXPECT_EQ(call.largest.read().data, (std::vector<double>{2}));
}

TEST_P(SelectTest, SameResultForAnyThreadCount) {
  const SelectCase c{.shape = {61, 799}, .k = 20, .dtype = DType::f16};
  const auto one = context(1), three = context(3);
  SelectCall a(*one, c), b(*three, c);
  top_k(*one, a.top_args);
  top_k(*three, b.top_args);
  EXPECT_TRUE(identical(a.indices.read(), b.indices.read()));
  EXPECT_TRUE(identical(a.values.read(), b.values.read()));
}

TEST_P(SelectTest, EmptyTensorsAreNoWork) {
  SelectCall no_rows(ctx(), {.shape = {0, 7}, .k = 3}),
      nothing_asked(ctx(), {.shape = {2, 7}, .k = 0});
  argmax(ctx(), no_rows.argmax_args);
  for (SelectCall* call : {&no_rows, &nothing_asked}) {
    top_k(ctx(), call->top_args);
    EXPECT_TRUE(call->largest.untouched());
    EXPECT_TRUE(call->values.untouched());
    EXPECT_TRUE(call->indices.untouched());
  }
}

TEST_P(SelectTest, IsTraced) {
  const char* kernel = GetParam().is_cpu() ? "cpu" : "cuda";
  SelectCall call(ctx(), {.shape = {2, 8}, .k = 3, .dtype = DType::f16});
  argmax(ctx(), call.argmax_args);
  top_k(ctx(), call.top_args);
  ASSERT_EQ(ctx().trace().calls("argmax", kernel), 1);
  ASSERT_EQ(ctx().trace().calls("top_k", kernel), 1);
  EXPECT_EQ(ctx().trace().entries()[0].bytes, 16 * 2 + 2 * 4);
  EXPECT_EQ(ctx().trace().entries()[1].shapes, "x f16[2, 8] k 3");
  EXPECT_EQ(ctx().trace().entries()[1].bytes, 16 * 2 + 6 * 2 + 6 * 4);
}

// ---- refusals -----------------------------------------------------------------------------------

TEST_P(SelectTest, ArgmaxRefusesBeforeWriting) {
  const std::string here = to_string(GetParam());
  const std::vector<Refusal<ArgmaxArgs>> refusals = {
      {[](ArgmaxArgs& a) { a.x = {}; }, "argmax: x was not given"},
      {[](ArgmaxArgs& a) { a.x.device = Device::cuda(7); },
       "argmax: x is on cuda:7, but the context runs on " + here},
      {[](ArgmaxArgs& a) { a.x.dtype = DType::i64; }, "argmax: x is i64; accepted: f32, f16, bf16"},
      {[](ArgmaxArgs& a) { a.x.data = nullptr; }, "argmax: x f32[3, 5] has no data (null pointer)"},
      {[](ArgmaxArgs& a) { a.x.data = a.x.ptr<char>() + 1; },
       "argmax: x f32[3, 5] is not aligned to its 4-byte elements"},
      {[](ArgmaxArgs& a) { a.x.strides[0] = std::numeric_limits<std::int64_t>::max(); },
       "size 2 x 9223372036854775807 does not fit into 64 bits", ErrorCode::overflow},
      {[](ArgmaxArgs& a) { a.x.shape[1] = 0; },
       "argmax: x f32[3, 0] has empty rows, which have no largest element"},
      {[](ArgmaxArgs& a) { a.x = a.x.select(0, 0); },
       "argmax: indices must have shape [1], got i32[3]"},
      {[](ArgmaxArgs& a) {
         a.x.shape = {1, std::int64_t{1} << 31};
         a.indices.shape[0] = 1;
       },
       "argmax: x has rows of 2147483648 elements, too long for i32 indices: use i64 indices"},
      {[](ArgmaxArgs& a) { a.indices = {}; }, "argmax: indices was not given"},
      {[](ArgmaxArgs& a) { a.indices.dtype = DType::f32; },
       "argmax: indices is f32; accepted: i32, i64"},
      {[](ArgmaxArgs& a) { a.indices.shape[0] = 2; },
       "argmax: indices must have the shape of x f32[3, 5] without the last dimension, got i32[2]"},
      {[](ArgmaxArgs& a) { a.indices.data = a.x.data; },
       "argmax: indices overlaps the memory of x"},
  };
  for (const Refusal<ArgmaxArgs>& refusal : refusals) {
    SCOPED_TRACE(refusal.text);
    SelectCall call(ctx(), {.shape = {3, 5}});
    refusal.spoil(call.argmax_args);
    EXPECT_TRUE(refuses([&] { argmax(ctx(), call.argmax_args); }, refusal.text, refusal.code));
    EXPECT_TRUE(call.x.untouched());
    EXPECT_TRUE(call.largest.untouched());
  }
  EXPECT_TRUE(ctx().trace().entries().empty());
}

TEST_P(SelectTest, TopKRefusesBeforeWriting) {
  const std::string here = to_string(GetParam());
  const std::vector<Refusal<TopKArgs>> refusals = {
      {[](TopKArgs& a) { a.x = {}; }, "top_k: x was not given"},
      {[](TopKArgs& a) { a.x.dtype = DType::u8; }, "top_k: x is u8; accepted: f32, f16, bf16"},
      {[](TopKArgs& a) { a.x.data = nullptr; }, "top_k: x f32[3, 5] has no data (null pointer)"},
      {[](TopKArgs& a) { a.x = a.x.slice(1, 0, 2); },
       "top_k: values asks for the 3 largest of 2 elements; k can be at most 2"},
      {[](TopKArgs& a) { a.values = {}; }, "top_k: values was not given"},
      {[](TopKArgs& a) { a.values.dtype = DType::f16; }, "top_k: values is f16; accepted: f32"},
      {[](TopKArgs& a) { a.values.device = Device::cuda(7); },
       "top_k: values is on cuda:7, but the context runs on " + here},
      {[](TopKArgs& a) { a.values = a.values.slice(0, 0, 2); },
       "top_k: values must have the shape of x f32[3, 5] with k as the last dimension, got f32[2, "
       "3]"},
      {[](TopKArgs& a) { a.values = a.values.view({9}); },
       "top_k: values must have the shape of x f32[3, 5] with k as the last dimension, got "
       "f32[9]"},
      {[](TopKArgs& a) { a.values.strides[0] = 2; },
       "top_k: values reaches an element more than once: f32[3, 3] with strides [2, 1]"},
      {[](TopKArgs& a) { a.indices = {}; }, "top_k: indices was not given"},
      {[](TopKArgs& a) { a.indices.dtype = DType::u8; },
       "top_k: indices is u8; accepted: i32, i64"},
      {[](TopKArgs& a) { a.indices = a.indices.slice(1, 0, 2); },
       "top_k: indices must have the shape of values, f32[3, 3], got i32[3, 2] with strides [3, "
       "1]"},
      {[](TopKArgs& a) { a.indices.data = a.values.data; },
       "top_k: indices overlaps the memory of values"},
      {[](TopKArgs& a) { a.values.data = a.x.data; }, "top_k: values overlaps the memory of x"},
  };
  for (const Refusal<TopKArgs>& refusal : refusals) {
    SCOPED_TRACE(refusal.text);
    SelectCall call(ctx(), {.shape = {3, 5}, .k = 3});
    refusal.spoil(call.top_args);
    EXPECT_TRUE(refuses([&] { top_k(ctx(), call.top_args); }, refusal.text, refusal.code));
    EXPECT_TRUE(call.x.untouched());
    EXPECT_TRUE(call.values.untouched());
    EXPECT_TRUE(call.indices.untouched());
  }
  EXPECT_TRUE(ctx().trace().entries().empty());
}

TEST(SelectSimd, EveryTarget) {
  Context ctx({.threads = 2});
  on_every_simd_target([&] {
    for (DType dtype : kFloats) {
      for (std::int64_t n : {1, 3, 16, 113, 239}) {
        Array values = random_normal({3, n}, 5);
        values.at(1, n - 1) = NAN;
        check_select(ctx,
                     {.shape = {3, n}, .k = n / 2 + 1, .dtype = dtype, .layout = Layout::sliced},
                     values);
      }
    }
  });
}

}  // namespace
}  // namespace tessera::test
