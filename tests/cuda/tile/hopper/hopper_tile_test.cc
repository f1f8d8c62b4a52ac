// The tile layer for Hopper against products of whole numbers, which must be exact.
#include "cuda/tile/hopper/hopper_tile.h"

#include <gtest/gtest.h>

#include "cuda/tile/hopper/hopper_test.h"
#include "reference/test_tensor.h"
#include "support/compare.h"
#include "support/devices.h"

namespace tessera::test {
namespace {

class HopperTileTest : public HopperTest {};
INSTANTIATE_TEST_SUITE_P(Devices, HopperTileTest, testing::Values(Device::cuda()), device_name);

cuda::tile::BoxedTensor boxed(const Tensor& x, int box_rows) {
  return {.data = x.data,
          .dtype = x.dtype,
          .sizes = {x.shape[1], x.shape[0], 1, 1},
          .strides = {x.strides[0], 0, 0},
          .box_rows = box_rows};
}

// The last rows of k and v do not exist, and are loaded as zeros.
TEST_P(HopperTileTest, BoxesAndProducts) {
  constexpr int kThere = 100;
  const TestTensor q(ctx(), random_integers({kRows, kDim}, 1, -2, 3), DType::bf16);
  const TestTensor k(ctx(), random_integers({kThere, kDim}, 2, -2, 3), DType::bf16);
  const TestTensor v(ctx(), random_integers({kThere, kDim}, 3, -2, 3), DType::bf16);
  const TestTensor scores = TestTensor::poisoned(ctx(), {kRows, kKeys}, DType::f32);
  const TestTensor out = TestTensor::poisoned(ctx(), {kRows, kDim}, DType::f32);
  two_products(ctx(), make_tensor_map(boxed(q, kRows)), make_tensor_map(boxed(k, kKeys)),
               make_tensor_map(boxed(v, kKeys)), scores.view().ptr<float>(),
               out.view().ptr<float>());
  const Array a = q.read(), b = k.read(), c = v.read();
  Array expected_scores({kRows, kKeys}), expected_out({kRows, kDim});
  for (std::int64_t i = 0; i < kRows; ++i) {
    for (std::int64_t j = 0; j < kThere; ++j) {
      for (std::int64_t d = 0; d < kDim; ++d) {
        expected_scores.at(i, j) += a.at(i, d) * b.at(j, d);
      }
      for (std::int64_t d = 0; d < kDim; ++d) {
        expected_out.at(i, d) += expected_scores.at(i, j) * c.at(j, d);
      }
    }
  }
  EXPECT_TRUE(identical(scores.read(), expected_scores));
  EXPECT_TRUE(identical(out.read(), expected_out));
}

TEST_P(HopperTileTest, WhatTheCopyEngineRefuses) {
  const TestTensor x(ctx(), random_integers({64, 72}, 1, -2, 3), DType::bf16);
  const cuda::tile::BoxedTensor good = boxed(x, 64);
  EXPECT_TRUE(can_be_boxed(good));
  auto bad = good;
  bad.data = static_cast<const char*>(bad.data) + 2;
  EXPECT_FALSE(can_be_boxed(bad));
  bad = good;
  bad.strides[0] = 73;
  EXPECT_FALSE(can_be_boxed(bad));
  bad = good;
  bad.strides[0] = 0;
  EXPECT_FALSE(can_be_boxed(bad));
  bad = good;
  bad.sizes[1] = 0;
  EXPECT_FALSE(can_be_boxed(bad));
}

}  // namespace
}  // namespace tessera::test
