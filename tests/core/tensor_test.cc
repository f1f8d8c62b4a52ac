#include "tessera/tensor.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "core/checked.h"
#include "core/rows.h"

namespace tessera {
namespace {

// What the call throws, or "no error".
template <typename F>
std::string error_of(F&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Tensor, ContiguousStridesAndSizes) {
  float data[24];
  const Tensor t(data, DType::f32, {2, 3, 4});
  EXPECT_EQ(t.rank, 3);
  EXPECT_EQ(t.numel(), 24);
  EXPECT_EQ(t.bytes(), 96);
  EXPECT_EQ(t.stride(0), 12);
  EXPECT_EQ(t.stride(-1), 1);
  EXPECT_TRUE(t.is_contiguous());
  EXPECT_EQ(to_string(t), "f32[2, 3, 4]");
}

TEST(Tensor, APointerToConstMakesItAndItsViewsReadOnly) {
  const std::vector<float> constant(24);
  const Tensor t(constant.data(), DType::f32, {2, 3, 4});
  EXPECT_EQ(t.ptr<const float>(), constant.data());
  const std::vector<std::int64_t> shape{4, 6}, strides{6, 1};
  const Tensor strided(constant.data(), DType::f32, shape, strides);
  for (const Tensor& view :
       {t, t.slice(0, 0, 1), t.select(1, 2), t.transpose(0, 1), t.permute({1, 0, 2}),
        t.view({-1, 8}), Tensor(constant.data(), DType::f32, shape), strided}) {
    EXPECT_TRUE(view.read_only) << to_string(view);
  }
}

TEST(Tensor, AnyOtherPointerMakesItWritable) {
  float data[24];
  void* untyped = data;
  for (const Tensor& view : {Tensor(data, DType::f32, {24}), Tensor(untyped, DType::f32, {24}),
                             Tensor(nullptr, DType::f32, {24}), Tensor(),
                             Tensor(data, DType::f32, {2, 12}).view({24})}) {
    EXPECT_FALSE(view.read_only) << to_string(view);
  }
}

TEST(Tensor, AnEmptyTensorIsNotGiven) {
  EXPECT_FALSE(Tensor().defined());
  EXPECT_EQ(Tensor().numel(), 0);
  EXPECT_EQ(to_string(Tensor()), "no tensor");
  float data[1];
  EXPECT_TRUE(Tensor(data, DType::f32, {0, 4}).defined());
}

TEST(Tensor, ViewsPointIntoTheSameMemory) {
  float data[24];
  for (int i = 0; i < 24; ++i) data[i] = static_cast<float>(i);
  const Tensor t(data, DType::f32, {2, 3, 4});
  const Tensor sliced = t.slice(1, 1, 3);
  EXPECT_EQ(sliced.ptr<float>()[0], 4.f);
  EXPECT_EQ(sliced.size(1), 2);
  EXPECT_FALSE(sliced.is_contiguous());
  EXPECT_EQ(to_string(sliced), "f32[2, 2, 4] with strides [12, 4, 1]");
  const Tensor selected = t.select(0, 1);
  EXPECT_EQ(selected.rank, 2);
  EXPECT_EQ(selected.ptr<float>()[0], 12.f);
  EXPECT_EQ(to_string(selected), "f32[3, 4]");
  const Tensor swapped = t.transpose(0, 1);
  EXPECT_EQ(swapped.size(0), 3);
  EXPECT_EQ(swapped.stride(0), 4);
  const Tensor turned = t.permute({2, 0, 1});
  EXPECT_EQ(to_string(turned), "f32[4, 2, 3] with strides [1, 12, 4]");
  const Tensor viewed = t.view({6, -1});
  EXPECT_EQ(to_string(viewed), "f32[6, 4]");
}

TEST(Tensor, RefusesWhatIsNotAView) {
  float data[24];
  const Tensor t(data, DType::f32, {2, 3, 4});
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max() / 2;
  const struct {
    std::string actual, expected;
  } cases[] = {
      {error_of([&] { (void)t.size(3); }), "dimension 3 is out of range for f32[2, 3, 4]"},
      {error_of([&] { (void)t.size(-4); }), "dimension -4 is out of range for f32[2, 3, 4]"},
      {error_of([&] { (void)t.slice(1, 2, 4); }),
       "slice [2, 4) does not lie in dimension 1 of f32[2, 3, 4]"},
      {error_of([&] { (void)t.slice(1, 2, 1); }),
       "slice [2, 1) does not lie in dimension 1 of f32[2, 3, 4]"},
      {error_of([&] {
         (void)t.permute({0, 0, 1});
       }),
       "(0, 0, 1) is not an order of the dimensions of f32[2, 3, 4]"},
      {error_of([&] {
         (void)t.permute({0, 1});
       }),
       "(0, 1) is not an order of the dimensions of f32[2, 3, 4]"},
      {error_of([&] {
         (void)t.view({5, -1});
       }),
       "f32[2, 3, 4] cannot be viewed as [5, -1]"},
      {error_of([&] {
         (void)t.view({-1, -1});
       }),
       "f32[2, 3, 4] cannot be viewed as [-1, -1]"},
      {error_of([&] { (void)t.transpose(0, 1).view({24}); }),
       "f32[3, 2, 4] with strides [4, 12, 1] cannot be viewed as [24]"},
      {error_of([&] {
         Tensor(data, DType::f32, {huge, 3});
       }),
       "size 4611686018427387903 x 3 does not fit into 64 bits"},
      {error_of([&] { Tensor(data, DType::f32, {huge}); }),
       "size 4611686018427387903 x 4 does not fit into 64 bits"},
      {error_of([&] {
         Tensor(data, DType::f32, {2, -1});
       }),
       "size -1 of a dimension is negative"},
      {error_of([&] {
         Tensor(data, DType::f32, {1, 1, 1, 1, 1, 1, 1});
       }),
       "a tensor of rank 7 was requested; at most 6 is possible"},
  };
  for (const auto& c : cases) EXPECT_EQ(c.actual, c.expected);
}

TEST(Checked, ThrowsInsteadOfWrapping) {
  const std::int64_t max = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(checked_mul(3, 5), 15);
  EXPECT_EQ(checked_align(65, 64), 128);
  EXPECT_EQ(checked_align(64, 64), 64);
  EXPECT_THROW(checked_mul(max, 2), Error);
  EXPECT_THROW(checked_add(max, 1), Error);
  EXPECT_THROW(checked_align(max - 3, 64), Error);
  const std::int64_t negative[] = {2, -3};
  EXPECT_THROW(checked_product(negative), Error);
}

TEST(Rows, WalksAnyLeadingStrides) {
  std::vector<float> data(2 * 3 * 4 * 5);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
  const Tensor t(data.data(), DType::f32, {2, 3, 4, 5});
  const Tensor views[] = {t,
                          t.slice(2, 1, 3),
                          t.permute({2, 0, 1, 3}),
                          t.select(1, 2),
                          t.slice(0, 1, 2).slice(1, 2, 3),
                          t.view({120})};
  for (const Tensor& view : views) {
    const Rows rows(view);
    EXPECT_EQ(rows.cols(), view.size(-1));
    EXPECT_EQ(rows.rows() * rows.cols(), view.numel());
    for (std::int64_t i = 0; i < rows.rows(); ++i) {
      std::int64_t rest = i, offset = 0;
      for (int d = view.rank - 2; d >= 0; --d) {
        offset += rest % view.size(d) * view.stride(d);
        rest /= view.size(d);
      }
      EXPECT_EQ(rows.row<float>(i), view.ptr<float>() + offset) << to_string(view) << " row " << i;
    }
  }
}

}  // namespace
}  // namespace tessera
