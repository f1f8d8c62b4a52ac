// The pieces of the tile layer that every GPU has, on numbers for which they must be exact.
#include "cuda/tile/tile_pieces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "reference/test_tensor.h"
#include "support/compare.h"
#include "support/devices.h"

namespace tessera::test {
namespace {

class TilePiecesTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, TilePiecesTest, testing::Values(Device::cuda()), device_name);

// By cp.async in two groups, rows with gaps and swizzled ones, ldmatrix, mma.sync.
template <typename T>
void check_tile_products(Context& ctx, DType dtype, int rows) {
  constexpr std::int64_t kSide = 16;
  const TestTensor a(ctx, random_integers({rows, kSide}, 1, -5, 6), dtype);
  const TestTensor b(ctx, random_integers({kSide, kSide}, 2, -5, 6), dtype);
  const TestTensor c(ctx, random_integers({kSide, kSide}, 3, -5, 6), dtype);
  const TestTensor straight = TestTensor::poisoned(ctx, {kSide, kSide}, DType::f32);
  const TestTensor transposed = TestTensor::poisoned(ctx, {kSide, kSide}, DType::f32);
  multiply_small<T>(ctx, {.a = a.view().ptr<T>(),
                          .b = b.view().ptr<T>(),
                          .c = c.view().ptr<T>(),
                          .rows = rows,
                          .straight = straight.view().ptr<float>(),
                          .transposed = transposed.view().ptr<float>()});
  const Array x = a.read(), y = b.read(), z = c.read();
  Array expected_straight({kSide, kSide}), expected_transposed({kSide, kSide});
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < kSide; ++j) {
      for (std::int64_t k = 0; k < kSide; ++k) {
        expected_straight.at(i, j) += x.at(i, k) * y.at(j, k);
        expected_transposed.at(i, j) += x.at(i, k) * z.at(k, j);
      }
    }
  }
  EXPECT_TRUE(identical(straight.read(), expected_straight));
  EXPECT_TRUE(identical(transposed.read(), expected_transposed));
}

TEST_P(TilePiecesTest, CopiedRowsMultiply) {
  for (const int rows : {16, 11, 1}) {
    check_tile_products<Half>(ctx(), DType::f16, rows);
    check_tile_products<BFloat16>(ctx(), DType::bf16, rows);
  }
}

TEST_P(TilePiecesTest, QuadsWarpsAndBlocksFold) {
  const TestTensor in(ctx(), random_integers({kFoldedLanes}, 1, -1000, 1000), DType::f32);
  const TestTensor folded = TestTensor::poisoned(ctx(), {kFoldedLanes, 5}, DType::f32);
  const TestTensor words = TestTensor::poisoned(ctx(), {kFoldedLanes, 4}, DType::i32);
  fold(ctx(), in.view().ptr<float>(), folded.view().ptr<float>(), words.view().ptr<std::int32_t>());
  const std::vector<double> x = in.read().data;
  const auto sum = [&](int from, int count) {
    return std::accumulate(x.begin() + from, x.begin() + from + count, 0.0);
  };
  const auto largest = [&](int from, int count) {
    return *std::max_element(x.begin() + from, x.begin() + from + count);
  };
  Array expected({kFoldedLanes, 5}), expected_words({kFoldedLanes, 4});
  for (int lane = 0; lane < kFoldedLanes; ++lane) {
    const int quad = lane / 4 * 4, warp = lane / 32 * 32;
    expected.at(lane, 0) = largest(quad, 4);
    expected.at(lane, 1) = sum(quad, 4);
    expected.at(lane, 2) = largest(warp, 32);
    expected.at(lane, 3) = sum(warp, 32);
    expected.at(lane, 4) = sum(0, kFoldedLanes);
    for (int i = 0; i < 4; ++i) expected_words.at(lane, i) = 100 * (quad + i) + lane % 4;
  }
  EXPECT_TRUE(identical(folded.read(), expected));
  EXPECT_TRUE(identical(words.read(), expected_words));
}

TEST_P(TilePiecesTest, PowersOfTwoReciprocalsAndPairs) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<double> values{3,          -2,        0,   1,    -126, -149,
                                   -kInfinity, kInfinity, 0.5, 2049, 2051, -0.3};
  const auto count = static_cast<std::int64_t>(values.size());
  Array given({count});
  given.data = values;
  const TestTensor in(ctx(), given, DType::f32);
  const TestTensor powers = TestTensor::poisoned(ctx(), {count}, DType::f32);
  const TestTensor reciprocals = TestTensor::poisoned(ctx(), {count}, DType::f32);
  const TestTensor f16 = TestTensor::poisoned(ctx(), {count}, DType::f16);
  const TestTensor bf16 = TestTensor::poisoned(ctx(), {count}, DType::bf16);
  raise_and_pack(ctx(), in.view().ptr<float>(), static_cast<int>(count), powers.view().ptr<float>(),
                 reciprocals.view().ptr<float>(), static_cast<std::uint32_t*>(f16.view().data),
                 static_cast<std::uint32_t*>(bf16.view().data));
  Array expected({count}), expected_reciprocals({count});
  for (std::int64_t i = 0; i < count; ++i) {
    expected_reciprocals.at(i) = 1 / values[static_cast<std::size_t>(i)];
    expected.at(i) = values[static_cast<std::size_t>(i)] < -126
                         ? 0.0
                         : std::exp2(values[static_cast<std::size_t>(i)]);
    if (expected.at(i) > std::numeric_limits<float>::max()) expected.at(i) = kInfinity;
  }
  EXPECT_TRUE(close(powers.read(), expected, 2 * epsilon(DType::f32), 0));
  EXPECT_TRUE(close(reciprocals.read(), expected_reciprocals, epsilon(DType::f32), 0));
  // The low half lies first in memory; ties go to even.
  EXPECT_TRUE(identical(f16.read(), TestTensor(ctx(), given, DType::f16).read()));
  EXPECT_TRUE(identical(bf16.read(), TestTensor(ctx(), given, DType::bf16).read()));
}

}  // namespace
}  // namespace tessera::test
