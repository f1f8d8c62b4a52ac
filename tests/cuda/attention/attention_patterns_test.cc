// Patterns of blocks on the Hopper kernel: which of them it takes, and each thing it could get
// wrong about them, with that kernel forced.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cuda/attention/choose.h"
#include "cuda/tile/hopper/hopper_test.h"
#include "support/attention_case.h"
#include "tessera/attention.h"

namespace tessera::test {
namespace {

constexpr char kPatternsOnHopper[] = "cuda.hopper";

class HopperPatternsTest : public HopperTest {
 protected:
  void SetUp() override {
    HopperTest::SetUp();
    if (IsSkipped()) return;
    cuda::force_attention_kernel(ctx(), kPatternsOnHopper);
  }
  void check(const AttentionCase& c) {
    ctx().trace().clear();
    check_attention_case(ctx(), c);
    EXPECT_EQ(ctx().trace().calls("attention", kPatternsOnHopper), 1) << c.text();
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, HopperPatternsTest, testing::Values(Device::cuda()), device_name);

// Rows of blocks that see nothing, one block, some and all, in no order of length.
BlockMask rows_of_all_lengths(std::int64_t block, std::int64_t q_blocks, std::int64_t k_blocks) {
  std::vector<std::int64_t> offsets{0};
  std::vector<std::int32_t> indices;
  for (std::int64_t r = 0; r < q_blocks; ++r) {
    for (std::int64_t c = 0; c < k_blocks; ++c) {
      const bool sees = r % 4 == 1   ? c == (r * 5) % k_blocks
                        : r % 4 == 2 ? (r + c) % 2 == 0
                                     : r % 4 == 3;
      if (sees) indices.push_back(static_cast<std::int32_t>(c));
    }
    offsets.push_back(std::ssize(indices));
  }
  return BlockMask::from_csr(block, q_blocks, k_blocks, offsets, indices);
}

// Every head dim with a kernel of its own and one that is filled up, both element types, rows and
// keys that end within a tile, and a diagonal that cuts tiles.
TEST_P(HopperPatternsTest, HeadDims) {
  for (std::int64_t dim : {40, 64, 80, 96, 128, 256}) {
    for (DType dtype : {DType::f16, DType::bf16}) {
      for (bool causal : {false, true}) {
        check({.n_q = 270,
               .n_k = 301,
               .heads = 1,
               .kv_heads = 1,
               .dim = dim,
               .mask = Mask::blocks(rows_of_all_lengths(128, 4, 4), causal),
               .dtype = dtype});
      }
    }
  }
}

// One row more or less than a tile, than half a tile and than a whole block.
TEST_P(HopperPatternsTest, TileEdges) {
  for (std::int64_t dim : {64, 128}) {
    for (std::int64_t n_q : {1, 64, 65, 128, 129, 257}) {
      for (std::int64_t n_k : {1, 64, 127, 128, 129, 320}) {
        for (bool causal : {false, true}) {
          check({.n_q = n_q,
                 .n_k = n_k,
                 .heads = 1,
                 .kv_heads = 1,
                 .dim = dim,
                 .mask = Mask::blocks(BlockMask::strided(128, 3, 3, 0, 2), causal),
                 .dtype = DType::bf16});
        }
      }
    }
  }
}

// Blocks of several tiles, some of them cut off by the diagonal or by the end of the keys.
TEST_P(HopperPatternsTest, BlocksOfManyTiles) {
  for (std::int64_t dim : {64, 128, 256}) {
    for (std::int64_t block : {256, 384, 512}) {
      for (bool causal : {false, true}) {
        check({.n_q = 300,
               .n_k = 500,
               .heads = 1,
               .kv_heads = 1,
               .dim = dim,
               .mask = Mask::blocks(rows_of_all_lengths(block, 3, 3), causal),
               .dtype = DType::f16});
      }
    }
  }
}

TEST_P(HopperPatternsTest, EveryKindOfPattern) {
  for (const BlockMask& pattern :
       {BlockMask::local(128, 4, 4, 1), BlockMask::random(128, 4, 4, 2, 7),
        BlockMask::strided(128, 4, 4, 0, 3), rows_of_all_lengths(128, 4, 4)}) {
    for (std::int64_t dim : {64, 128}) {
      for (bool causal : {false, true}) {
        check({.n_q = 400,
               .n_k = 450,
               .heads = 1,
               .kv_heads = 1,
               .dim = dim,
               .mask = Mask::blocks(pattern, causal),
               .dtype = DType::bf16});
      }
    }
  }
}

// More items than blocks run at a time (two on a multiprocessor up to D 64), of different lengths,
// for heads that share keys.
TEST_P(HopperPatternsTest, ManyItems) {
  for (std::int64_t dim : {16, 72}) {
    for (bool causal : {false, true}) {
      check({.batch = 3,
             .n_q = 300,
             .n_k = 150,
             .heads = dim == 16 ? 32 : 16,
             .kv_heads = 4,
             .dim = dim,
             .mask = Mask::blocks(rows_of_all_lengths(128, 3, 3), causal),
             .dtype = DType::bf16});
    }
  }
}

// A pattern may have more rows and columns than the call.
TEST_P(HopperPatternsTest, PatternsLargerThanTheCall) {
  for (bool causal : {false, true}) {
    check({.n_q = 300,
           .n_k = 260,
           .heads = 3,
           .kv_heads = 3,
           .mask = Mask::blocks(rows_of_all_lengths(128, 11, 9), causal),
           .dtype = DType::f16});
  }
}

// More queries than keys: under a diagonal the first rows, and whole tiles of them, see nothing.
TEST_P(HopperPatternsTest, RowsThatSeeNothing) {
  for (std::int64_t dim : {64, 128}) {
    check({.n_q = 600,
           .n_k = 150,
           .heads = 1,
           .kv_heads = 1,
           .dim = dim,
           .mask = Mask::blocks(BlockMask::local(128, 5, 5, 4), true),
           .dtype = DType::f16});
  }
}

TEST_P(HopperPatternsTest, NothingAtAllIsZeros) {
  const std::vector<std::int64_t> offsets(5, 0);
  AttentionTensors t(ctx(), {.n_q = 500,
                             .n_k = 500,
                             .mask = Mask::blocks(BlockMask::from_csr(128, 4, 4, offsets, {})),
                             .dtype = DType::bf16});
  attention(ctx(), t.args);
  for (const double x : t.out.read().data) ASSERT_EQ(x, 0.0);
  for (const double x : t.lse.read().data) ASSERT_EQ(x, -INFINITY);
}

TEST_P(HopperPatternsTest, LayoutsThatTheCopyEngineTakes) {
  check({.batch = 2,
         .n_q = 200,
         .n_k = 330,
         .heads = 6,
         .kv_heads = 2,
         .mask = Mask::blocks(BlockMask::random(128, 2, 3, 2, 3), true),
         .dtype = DType::bf16,
         .layout = Layout::permuted});
}

// Tiles that a row of blocks does not see are not read: a NaN in them does not show.
TEST_P(HopperPatternsTest, VisitsItsTilesOnly) {
  constexpr std::int64_t kBlock = 128;
  const BlockMask pattern = rows_of_all_lengths(kBlock, 4, 4);
  for (std::int64_t dim : {64, 128}) {
    const AttentionCase c{.n_q = 4 * kBlock,
                          .n_k = 4 * kBlock,
                          .heads = 1,
                          .kv_heads = 1,
                          .dim = dim,
                          .mask = Mask::blocks(pattern),
                          .dtype = DType::f16};
    check_hidden_blocks_stay_unread(ctx(), c, pattern, kBlock);
  }
}

TEST_P(HopperPatternsTest, SameBitsTwice) {
  for (std::int64_t dim : {64, 128}) {
    const AttentionCase c{.batch = 2,
                          .n_q = 1200,
                          .n_k = 1200,
                          .heads = 16,
                          .kv_heads = 2,
                          .dim = dim,
                          .mask = Mask::blocks(rows_of_all_lengths(128, 10, 10), true),
                          .dtype = DType::bf16};
    AttentionTensors a(ctx(), c), b(ctx(), c);
    attention(ctx(), a.args);
    attention(ctx(), b.args);
    EXPECT_TRUE(identical(a.out.read(), b.out.read()));
    EXPECT_TRUE(identical(a.lse.read(), b.lse.read()));
  }
}

// Blocks that are not made of whole tiles, and few rows, are left to other kernels.
TEST_P(HopperPatternsTest, IsChosenForWholeTiles) {
  cuda::force_attention_kernel(ctx(), "");
  const struct {
    std::int64_t n_q, block;
    const char* kernel;
  } cases[] = {{200, 128, kPatternsOnHopper},
               {200, 384, kPatternsOnHopper},
               {200, 64, "cuda.mma"},
               {200, 192, "cuda.mma"},
               {5, 128, "cuda.split"}};
  for (const auto& [n_q, block, kernel] : cases) {
    const AttentionTensors t(ctx(), {.n_q = n_q,
                                     .n_k = 200,
                                     .mask = Mask::blocks(BlockMask::local(block, 4, 4, 0)),
                                     .dtype = DType::bf16});
    EXPECT_STREQ(cuda::attention_kernels(ctx(), t.args).front(), kernel) << block;
  }
}

}  // namespace
}  // namespace tessera::test
