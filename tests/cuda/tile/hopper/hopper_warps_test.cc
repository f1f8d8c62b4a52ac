// What warps, warpgroups and blocks of a cluster do together, on whole numbers: the results must be
// exact.
#include "cuda/tile/hopper/hopper_warps.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "core/half.h"
#include "cuda/tile/hopper/hopper_test.h"
#include "reference/test_tensor.h"
#include "support/compare.h"
#include "support/devices.h"

namespace tessera::test {
namespace {

class HopperWarpsTest : public HopperTest {};
INSTANTIATE_TEST_SUITE_P(Devices, HopperWarpsTest, testing::Values(Device::cuda()), device_name);

TEST_P(HopperWarpsTest, MatricesAreStoredAndTransposed) {
  const TestTensor in(ctx(), random_integers({4, 8, 8}, 1, -999, 1000), DType::f16);
  const TestTensor stored = TestTensor::poisoned(ctx(), {4, 8, 8}, DType::f16);
  const TestTensor store_transposed = TestTensor::poisoned(ctx(), {4, 8, 8}, DType::f16);
  const TestTensor transposed = TestTensor::poisoned(ctx(), {4, 8, 8}, DType::f16);
  transpose_matrices(ctx(), in.view().ptr<std::uint16_t>(), stored.view().ptr<std::uint16_t>(),
                     store_transposed.view().ptr<std::uint16_t>(),
                     transposed.view().ptr<std::uint16_t>());
  const Array given = in.read();
  Array expected({4, 8, 8});
  for (int i = 0; i < 4 * 64; ++i) {
    expected.at(i / 64, i / 8 % 8, i % 8) = given.at(i / 64, i % 8, i / 8 % 8);
  }
  EXPECT_TRUE(identical(stored.read(), given));
  EXPECT_TRUE(identical(store_transposed.read(), expected));
  EXPECT_TRUE(identical(transposed.read(), expected));
}

template <typename T>
void check_products(Context& ctx, DType dtype, int n) {
  constexpr int kRows = 64, kDepth = 64;
  const TestTensor a(ctx, random_integers({kRows, kDepth}, 1, -3, 4), dtype);
  const TestTensor b(ctx, random_integers({n, kDepth}, 2, -3, 4), dtype);
  const TestTensor c(ctx, random_integers({kDepth, n}, 3, -3, 4), dtype);
  const TestTensor out = TestTensor::poisoned(ctx, {4, kRows, n}, DType::f32);
  const auto map = [&](const Tensor& x, int box_rows) {
    return make_tensor_map(cuda::tile::BoxedTensor{.data = x.data,
                                                   .dtype = dtype,
                                                   .sizes = {x.shape[1], x.shape[0], 1, 1},
                                                   .strides = {x.strides[0], 0, 0},
                                                   .box_rows = box_rows});
  };
  multiply_wide<T>(ctx, n, {map(a, kRows), map(b, n), map(c, kDepth)}, out.view().ptr<float>());
  const Array x = a.read(), y = b.read(), z = c.read();
  Array expected({4, kRows, n});
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < n; ++j) {
      double straight = 0, transposed = 0;
      for (int k = 0; k < kDepth; ++k) {
        straight += x.at(i, k) * y.at(j, k);
        transposed += x.at(i, k) * z.at(k, j);
      }
      expected.at(0, i, j) = expected.at(2, i, j) = straight;
      expected.at(1, i, j) = expected.at(3, i, j) = transposed;
    }
  }
  EXPECT_TRUE(identical(out.read(), expected)) << n;
  EXPECT_TRUE(out.surroundings_intact());
}

TEST_P(HopperWarpsTest, ProductsOfEveryWidth) {
  for (const int n : kWidths) {
    check_products<Half>(ctx(), DType::f16, n);
    check_products<BFloat16>(ctx(), DType::bf16, n);
  }
}

TEST_P(HopperWarpsTest, WarpgroupsTakeTurns) {
  const TestTensor notes = TestTensor::poisoned(ctx(), {kTurns}, DType::i32);
  take_turns(ctx(), notes.view().ptr<std::int32_t>());
  Array expected({kTurns});
  for (int i = 0; i < kTurns; ++i) expected.at(i) = (i + 2) % 3;
  EXPECT_TRUE(identical(notes.read(), expected));
}

TEST_P(HopperWarpsTest, BlocksOfAClusterSendNumbers) {
  for (const int blocks : {2, 4, 8}) {
    const TestTensor out = TestTensor::poisoned(ctx(), {blocks, blocks, 32, 4}, DType::f32);
    exchange(ctx(), blocks, out.view().ptr<float>());
    Array expected({blocks, blocks, 32, 4}, 1.0);
    for (int to = 0; to < blocks; ++to) {
      for (int from = 0; from < blocks; ++from) {
        for (int lane = 0; lane < 32; ++lane) {
          expected.at(to, from, lane, 0) = from;
          expected.at(to, from, lane, 1) = to;
          expected.at(to, from, lane, 2) = lane;
        }
      }
    }
    EXPECT_TRUE(identical(out.read(), expected)) << blocks;
  }
}

}  // namespace
}  // namespace tessera::test
