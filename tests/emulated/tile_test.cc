// The pieces of src/cuda/tile on the emulated GPU: registers and memory are laid out as CUDA
// documents it, and code that reads a copy before waiting for it reads NaN. Compiled as a kernel
// is.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "core/half.h"
#include "cuda/tile/cp_async.cuh"
#include "cuda/tile/exp2.cuh"
#include "cuda/tile/ldmatrix.cuh"
#include "cuda/tile/mma.cuh"
#include "cuda/tile/mma_int8.cuh"
#include "cuda/tile/pack.cuh"
#include "cuda/tile/padded_rows.cuh"
#include "cuda/tile/quad.cuh"
#include "cuda/tile/reciprocal.cuh"
#include "emulated/simt.h"

namespace tessera::cuda {
namespace {

using emulated::dynamic_shared_memory;
using emulated::run_grid;

int lane() { return static_cast<int>(threadIdx.x); }

TEST(TileTest, MatricesAreSpreadOverTheLanes) {
  std::vector<std::uint16_t> rows(4 * 8 * 8);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::uint16_t>(i);
  int wrong = 0;
  run_grid(dim3(1), dim3(32), 0, [&] {
    std::uint32_t straight[4], transposed[4];
    load_matrices(straight, &rows[static_cast<std::size_t>(8 * lane())]);
    load_matrices_transposed(transposed, &rows[static_cast<std::size_t>(8 * lane())]);
    const int r = lane() / 4, c = 2 * (lane() % 4);
    for (int m = 0; m < 4; ++m) {
      const auto at = [&](int row, int column) {
        return static_cast<std::uint32_t>(64 * m + 8 * row + column);
      };
      wrong += straight[m] != (at(r, c) | at(r, c + 1) << 16);
      wrong += transposed[m] != (at(c, r) | at(c + 1, r) << 16);
    }
  });
  EXPECT_EQ(wrong, 0);
}

// C [16, 16] = A [16, 16] B, with B once as [n, k], by load_matrices, and once as [k, n],
// transposed: the two ways in which attention reads keys and values.
template <typename T>
void check_products(T (*rounded)(float)) {
  using Rows = PaddedRows<16>;
  float wrong = 0.f;
  run_grid(dim3(1), dim3(32), 48 * Rows::kRowBytes, [&] {
    auto* shared = static_cast<unsigned char*>(dynamic_shared_memory());
    unsigned char *a = shared, *b = a + 16 * Rows::kRowBytes,
                  *b_transposed = b + 16 * Rows::kRowBytes;
    const auto element = [](unsigned char* rows, int r, int c) {
      return reinterpret_cast<T*>(rows + Rows::at(r, c / 8)) + c % 8;
    };
    const auto value = [](int seed, int r, int c) {
      return static_cast<float>((r * 7 + c * 13 + seed) % 11 - 5);
    };
    for (int i = lane(); i < 256; i += 32) {
      *element(a, i / 16, i % 16) = rounded(value(1, i / 16, i % 16));
      *element(b, i % 16, i / 16) = rounded(value(2, i / 16, i % 16));
      *element(b_transposed, i / 16, i % 16) = rounded(value(2, i / 16, i % 16));
    }
    __syncwarp();
    std::uint32_t left[4], right[4], right_transposed[4];
    load_matrices(left, a + Rows::at(lane() % 16, lane() / 16));
    load_matrices(right, b + Rows::at(lane() / 16 * 8 + lane() % 8, lane() / 8 % 2));
    load_matrices_transposed(right_transposed, b_transposed + Rows::at(lane() % 16, lane() / 16));
    for (int n = 0; n < 2; ++n) {
      float c[4] = {}, c_transposed[4] = {};
      mma_16x8x16(c, left, {right[2 * n], right[2 * n + 1]}, T());
      mma_16x8x16(c_transposed, left, {right_transposed[2 * n], right_transposed[2 * n + 1]}, T());
      for (int i = 0; i < 4; ++i) {
        const int row = lane() / 4 + i / 2 * 8, column = 8 * n + 2 * (lane() % 4) + i % 2;
        float expected = 0.f;
        for (int k = 0; k < 16; ++k) expected += value(1, row, k) * value(2, k, column);
        wrong += std::abs(c[i] - expected) + std::abs(c_transposed[i] - expected);
      }
    }
  });
  EXPECT_EQ(wrong, 0.f);
}

TEST(TileTest, RowsOfSharedMemoryMultiply) {
  check_products<Half>(to_f16);
  check_products<BFloat16>(to_bf16);
}

// Sums of signed bytes, from the documented places of both operands.
TEST(TileTest, BytesMultiply) {
  const auto value = [](int seed, int r, int c) { return (r * 37 + c * 101 + seed) % 256 - 128; };
  int wrong = 0;
  run_grid(dim3(1), dim3(32), 0, [&] {
    const int g = lane() / 4, t = lane() % 4;
    const auto word = [&](int seed, int row, int k) {
      std::uint32_t bytes = 0;
      for (int i = 0; i < 4; ++i) {
        bytes |= static_cast<std::uint32_t>(value(seed, row, k + i) & 255) << (8 * i);
      }
      return bytes;
    };
    int sums[4] = {1, 2, 3, 4};
    mma_16x8x32(sums,
                {word(1, g, 4 * t), word(1, g + 8, 4 * t), word(1, g, 4 * t + 16),
                 word(1, g + 8, 4 * t + 16)},
                {word(2, g, 4 * t), word(2, g, 4 * t + 16)});
    for (int i = 0; i < 4; ++i) {
      int expected = 1 + i;
      for (int k = 0; k < 32; ++k) {
        expected += value(1, g + i / 2 * 8, k) * value(2, 2 * t + i % 2, k);
      }
      wrong += sums[i] != expected;
    }
  });
  EXPECT_EQ(wrong, 0);
}

template <int dim>
void check_banks() {
  using Rows = PaddedRows<dim>;
  std::set<int> places;
  for (int row = 0; row < 64; ++row) {
    for (int chunk = 0; chunk < Rows::kChunks; ++chunk) {
      EXPECT_EQ(Rows::at(row, chunk) % 16, 0);
      EXPECT_LT(Rows::at(row, chunk), 64 * Rows::kRowBytes);
      EXPECT_TRUE(places.insert(Rows::at(row, chunk)).second);
      std::set<int> banks;  // that rows row .. row + 7 meet in this column
      for (int r = row; r < row + 8; ++r) banks.insert(Rows::at(r, chunk) / 16 % 8);
      EXPECT_EQ(banks.size(), 8u) << dim << " " << row << " " << chunk;
    }
  }
}

TEST(TileTest, EightRowsOfAColumnMeetEveryBankOnce) {
  check_banks<64>();
  check_banks<80>();
  check_banks<96>();
  check_banks<128>();
  check_banks<256>();
}

TEST(TileTest, CopiesLandWhenTheyAreWaitedForAndNotBefore) {
  const std::vector<int> from{1, 2, 3, 4, 5, 6, 7, 8};
  int wrong = 0;
  run_grid(dim3(1), dim3(64), 64 * 32, [&] {
    int* mine = static_cast<int*>(dynamic_shared_memory()) + 8 * lane();
    copy_async(mine, &from[0], true);
    close_copy_group();
    copy_async(mine + 4, &from[4], lane() % 2 == 0);
    close_copy_group();
    wrong += mine[0] != -1 || mine[4] != -1;
    wait_for_copies<1>();
    wrong += mine[0] != 1 || mine[3] != 4 || mine[4] != -1;
    wait_for_copies<0>();
    wrong += mine[4] != (lane() % 2 == 0 ? 5 : 0) || mine[7] != (lane() % 2 == 0 ? 8 : 0);
  });
  EXPECT_EQ(wrong, 0);
}

TEST(TileTest, QuadsReduceAmongThemselves) {
  int wrong = 0;
  run_grid(dim3(1), dim3(32), 0, [&] {
    const int first = lane() / 4 * 4;
    wrong += tile::quad_sum(static_cast<float>(lane())) != static_cast<float>(4 * first + 6);
    wrong += tile::quad_max(static_cast<float>(-lane())) != static_cast<float>(-first);
  });
  EXPECT_EQ(wrong, 0);
}

TEST(TileTest, PairsArePackedLowHalfFirst) {
  EXPECT_EQ(pack(1.f, -2.f, Half()), 0xc0003c00u);
  EXPECT_EQ(pack(1.f, -2.f, BFloat16()), 0xc0003f80u);
  EXPECT_EQ(pack(2049.f, 2051.f, Half()), 0x68026800u);  // ties to even
}

TEST(TileTest, PowersOfTwo) {
  EXPECT_EQ(fast_exp2(3.f), 8.f);
  EXPECT_EQ(fast_exp2(-INFINITY), 0.f);
  EXPECT_TRUE(std::isnan(fast_exp2(NAN)));
}

TEST(TileTest, Reciprocals) {
  EXPECT_EQ(fast_reciprocal(-4.f), -0.25f);
  EXPECT_EQ(fast_reciprocal(0x1p127f), 0.f);
  EXPECT_TRUE(std::isnan(fast_reciprocal(NAN)));
}

}  // namespace
}  // namespace tessera::cuda
