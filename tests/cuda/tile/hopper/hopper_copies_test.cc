// The copy engine through the tile layer, on whole numbers: what is loaded, what is stored, and
// what must not be written.
#include "cuda/tile/hopper/hopper_copies.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "cuda/tile/hopper/hopper_test.h"
#include "reference/test_tensor.h"
#include "support/compare.h"
#include "support/devices.h"

namespace tessera::test {
namespace {

class HopperCopiesTest : public HopperTest {};
INSTANTIATE_TEST_SUITE_P(Devices, HopperCopiesTest, testing::Values(Device::cuda()), device_name);

// [batch, rows, heads, dim] without the last head, the last eight columns, the first row and the
// last: the copy engine must not touch them.
struct Inner {
  std::int64_t batch, rows, heads, dim;

  std::vector<std::int64_t> whole() const { return {batch, rows + 2, heads + 1, dim + 8}; }
  cuda::tile::BoxedTensor boxed(const Tensor& x) const {
    return {.data = x.ptr<const std::uint16_t>() + x.strides[1],
            .dtype = x.dtype,
            .sizes = {dim, rows, heads, batch},
            .strides = {x.strides[1], x.strides[2], x.strides[0]},
            .box_rows = kBox};
  }
};

// Of an array of whole(): element (column, row, head, batch) of the part, or null beyond it.
double* inner_at(Array& x, const Inner& part, std::int64_t column, std::int64_t row,
                 std::int64_t head, std::int64_t batch) {
  if (column < 0 || column >= part.dim || row < 0 || row >= part.rows) return nullptr;
  return &x.at(batch, row + 1, head, column);
}

void check_move(Context& ctx, const Inner& from, BoxPlace source, const Inner& to,
                BoxPlace target) {
  const TestTensor in(ctx, random_integers(from.whole(), 1, -9, 10), DType::f16);
  const TestTensor out = TestTensor::poisoned(ctx, to.whole(), DType::f16);
  move_box(ctx, make_tensor_map(from.boxed(in)), source, make_tensor_map(to.boxed(out)), target);
  Array read = in.read();
  Array expected(to.whole(), std::numeric_limits<double>::quiet_NaN());
  for (int r = 0; r < kBox; ++r) {
    for (int c = 0; c < kBox; ++c) {
      const double* value =
          inner_at(read, from, source.at[0] + c, source.at[1] + r, source.at[2], source.at[3]);
      double* place =
          inner_at(expected, to, target.at[0] + c, target.at[1] + r, target.at[2], target.at[3]);
      if (place != nullptr) *place = marked(value == nullptr ? 0 : static_cast<int>(*value), r, c);
    }
  }
  EXPECT_TRUE(identical(out.read(), expected));
  EXPECT_TRUE(out.surroundings_intact());
}

TEST_P(HopperCopiesTest, ABoxMovesWithinItsTensor) {
  const Inner part{.batch = 2, .rows = 150, .heads = 3, .dim = 128};
  check_move(ctx(), part, {{0, 0, 0, 0}}, part, {{0, 0, 0, 0}});
  check_move(ctx(), part, {{64, 33, 2, 1}}, part, {{0, 61, 1, 0}});
  check_move(ctx(), part, {{0, 86, 0, 1}}, part, {{64, 1, 2, 1}});
}

TEST_P(HopperCopiesTest, WhatLiesOutsideComesAsZerosAndIsNotWritten) {
  const Inner small{.batch = 1, .rows = 37, .heads = 2, .dim = 40};
  const Inner large{.batch = 2, .rows = 100, .heads = 2, .dim = 104};
  check_move(ctx(), small, {{0, 0, 1, 0}}, large, {{64, 80, 1, 1}});
  check_move(ctx(), large, {{64, 77, 0, 1}}, small, {{0, 11, 1, 0}});
  check_move(ctx(), large, {{0, -5, 1, 0}}, large, {{0, 99, 0, 1}});  // a load may begin before
  check_move(ctx(), large, {{-8, -64, 1, 0}}, large, {{0, 0, 0, 1}});
}

TEST_P(HopperCopiesTest, ABoxBeyondTheLastRowIsNotWritten) {
  const Inner small{.batch = 1, .rows = 37, .heads = 2, .dim = 40};
  const Inner large{.batch = 2, .rows = 100, .heads = 2, .dim = 104};
  check_move(ctx(), large, {{0, 0, 0, 0}}, small, {{0, 37, 0, 0}});
  check_move(ctx(), large, {{0, 0, 0, 0}}, small, {{64, 0, 1, 0}});
}

void check_sharing(Context& ctx, int blocks, Masks masks) {
  const TestTensor in(ctx, random_integers({kBox * blocks, kBox}, 1, -99, 100), DType::f16);
  const TestTensor out = TestTensor::poisoned(ctx, {blocks, blocks, kBox, kBox}, DType::f16);
  const cuda::tile::BoxedTensor boxed{.data = in.view().data,
                                      .dtype = DType::f16,
                                      .sizes = {kBox, kBox * blocks, 1, 1},
                                      .strides = {kBox, 0, 0},
                                      .box_rows = kBox};
  share_boxes(ctx, make_tensor_map(boxed), masks, blocks, out.view().ptr<std::uint16_t>());
  const Array read = in.read();
  Array expected({blocks, blocks, kBox, kBox});
  for (int to = 0; to < blocks; ++to) {
    for (int by = 0; by < blocks; ++by) {
      for (int i = 0; i < kBox * kBox; ++i) {
        const bool came = (masks.of[by] >> to & 1) != 0;
        expected.at(to, by, i / kBox, i % kBox) =
            came ? read.at(kBox * by + i / kBox, i % kBox) : -1.0;
      }
    }
  }
  EXPECT_TRUE(identical(out.read(), expected));
}

TEST_P(HopperCopiesTest, TwoBlocksShareBoxes) {
  check_sharing(ctx(), 2, {{3, 3}});
  check_sharing(ctx(), 2, {{2, 1}});  // each for the other
  check_sharing(ctx(), 2, {{3, 0}});
  check_sharing(ctx(), 2, {{0, 2}});  // nothing comes to the first
}

TEST_P(HopperCopiesTest, FourBlocksShareBoxes) {
  check_sharing(ctx(), 4, {{15, 15, 15, 15}});
  check_sharing(ctx(), 4, {{2, 4, 8, 1}});
  check_sharing(ctx(), 4, {{6, 9, 0, 15}});
  check_sharing(ctx(), 4, {{0, 0, 11, 0}});
}

TEST_P(HopperCopiesTest, BoxesOfBytes) {
  constexpr int kRows = 5, kRowBytes = 96, kBoxRows = 4, kBoxBytes = 64;
  const TestTensor in(ctx(), random_integers({kRows, kRowBytes}, 1, 1, 256), DType::u8);
  const CUtensorMap map = make_tensor_map(cuda::tile::BoxedBytes{.data = in.view().data,
                                                                 .rows = kRows,
                                                                 .row_bytes = kRowBytes,
                                                                 .box_rows = kBoxRows,
                                                                 .box_bytes = kBoxBytes});
  const Array read = in.read();
  for (const int row : {0, 1, 3}) {
    for (const int unit : {0, 4, 6, 10}) {
      const TestTensor out = TestTensor::poisoned(ctx(), {kBoxRows, kBoxBytes}, DType::u8);
      load_bytes(ctx(), map, row, unit, kBoxRows * kBoxBytes, out.view().ptr<std::uint8_t>());
      Array expected({kBoxRows, kBoxBytes});
      for (int r = 0; r < kBoxRows; ++r) {
        for (int b = 0; b < kBoxBytes; ++b) {
          const bool there = row + r < kRows && 8 * unit + b < kRowBytes;
          expected.at(r, b) = there ? read.at(row + r, 8 * unit + b) : 0.0;
        }
      }
      EXPECT_TRUE(identical(out.read(), expected)) << row << " " << unit;
    }
  }
}

TEST_P(HopperCopiesTest, PiecesPassThroughRingsOfBuffers) {
  for (const auto& [count, piece] : {std::pair{4, 4}, {4096, 1024}, {40000, 1024}, {20004, 52}}) {
    const TestTensor in(ctx(), random_integers({count}, 1, -1000, 1000), DType::i32);
    const TestTensor out = TestTensor::poisoned(ctx(), {count}, DType::i32);
    add_one(ctx(), in.view().ptr<std::int32_t>(), out.view().ptr<std::int32_t>(), count, piece);
    Array expected = in.read();
    for (std::int64_t i = 0; i < count; ++i) expected.at(i) += 1;
    EXPECT_TRUE(identical(out.read(), expected)) << count << " by " << piece;
    EXPECT_TRUE(out.surroundings_intact());
  }
}

}  // namespace
}  // namespace tessera::test
