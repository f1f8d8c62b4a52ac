// Attention in 16 bits, where a GPU has kernels of its own for many query rows and for few: sizes
// at the borders of their tiles, every head dim they are compiled for, and what they do with keys
// that nobody sees or that are not there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/build_config.h"
#include "cuda/attention/choose.h"
#include "support/attention_case.h"
#include "support/devices.h"
#include "support/sanitizers.h"
#include "tessera/attention.h"
#include "tessera/rotary.h"

namespace tessera::test {
namespace {

constexpr DType kHalves[] = {DType::f16, DType::bf16};

class AttentionKernelsTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, AttentionKernelsTest, testing::ValuesIn(test_devices()),
                         device_name);

TEST_P(AttentionKernelsTest, HeadDims) {
  Thinned thinned(3);
  for (DType dtype : kHalves) {
    for (std::int64_t dim : {1, 8, 37, 64, 72, 80, 96, 128, 136, 256}) {
      for (std::int64_t n_q : {3, 70}) {
        if (!thinned.takes_next()) continue;
        check_attention_case(ctx(), {.n_q = n_q,
                                     .n_k = 150,
                                     .heads = 2,
                                     .kv_heads = 1,
                                     .dim = dim,
                                     .mask = Mask::causal(),
                                     .dtype = dtype});
      }
    }
  }
}

TEST_P(AttentionKernelsTest, TileBorders) {
  Thinned thinned(5);
  for (std::int64_t n_q : {1, 15, 16, 17, 64, 65, 127, 128, 129}) {
    for (std::int64_t n_k : {1, 16, 49, 63, 64, 65, 129}) {
      for (const Mask& mask : {Mask::full(), Mask::causal()}) {
        if (!thinned.takes_next()) continue;
        check_attention_case(ctx(), {.n_q = n_q,
                                     .n_k = n_k,
                                     .heads = 1,
                                     .kv_heads = 1,
                                     .dim = 16,
                                     .mask = mask,
                                     .dtype = DType::f16});
      }
    }
  }
}

// Several tiles of keys of every kernel, of which a band passes over some and sees others in part.
TEST_P(AttentionKernelsTest, BandsOverManyTiles) {
  Thinned thinned(2);
  for (std::int64_t dim : {64, 80, 96, 128, 256}) {
    for (const Mask& mask : {Mask::causal(), Mask::window(100, 0), Mask::window(30, 150)}) {
      if (!thinned.takes_next()) continue;
      check_attention_case(ctx(), {.n_q = kSanitized ? 140 : 210,
                                   .n_k = kSanitized ? 270 : 333,
                                   .heads = 1,
                                   .kv_heads = 1,
                                   .dim = dim,
                                   .mask = mask,
                                   .dtype = DType::bf16,
                                   .layout = Layout::permuted});
    }
  }
}

// Blocks that are whole tiles of keys, and rows of several of them in one tile of rows.
TEST_P(AttentionKernelsTest, PatternsOfWholeTiles) {
  Thinned thinned(3);
  for (std::int64_t dim : {64, 128}) {
    for (std::int64_t heads : {1, 3}) {
      if (!thinned.takes_next()) continue;
      check_attention_case(ctx(), {.n_q = kSanitized ? 140 : 200,
                                   .n_k = kSanitized ? 270 : 300,
                                   .heads = heads,
                                   .kv_heads = 1,
                                   .dim = dim,
                                   .mask = Mask::blocks(BlockMask::random(128, 2, 3, 2, 1)),
                                   .dtype = DType::bf16});
    }
  }
}

// Patterns that are larger than the call: the first key of a block that lies far beyond the keys is
// no int, and may look like a key that is there.
TEST_P(AttentionKernelsTest, PatternsBeyondTheKeys) {
  const auto row_of = [](std::int64_t block, std::vector<std::int32_t> blocks) {
    const std::int64_t offsets[] = {0, std::ssize(blocks)};
    return BlockMask::from_csr(block, 1, blocks.back() + 1, offsets, blocks);
  };
  const BlockMask patterns[] = {row_of(65536, {32768}),      // 2^31: nothing is seen
                                row_of(65536, {65536}),      // 2^32
                                row_of(128, {0, 1 << 24}),   // 2^31, blocks of whole tiles
                                row_of(80, {0, 53687092})};  // 2^32 + 64, other blocks
  for (const BlockMask& pattern : patterns) {
    for (std::int64_t n_q : {3, 64}) {
      for (std::int64_t n_k : {64, 100}) {
        check_attention_case(ctx(), {.n_q = n_q,
                                     .n_k = n_k,
                                     .heads = 1,
                                     .kv_heads = 1,
                                     .dim = 16,
                                     .mask = Mask::blocks(pattern),
                                     .dtype = DType::f16});
      }
    }
  }
}

// More queries than keys: under a causal mask the first rows, and whole tiles of them, see nothing.
TEST_P(AttentionKernelsTest, RowsThatSeeNothing) {
  for (std::int64_t dim : {64, 128, 256}) {
    check_attention_case(ctx(), {.n_q = 300,
                                 .n_k = 70,
                                 .heads = 1,
                                 .kv_heads = 1,
                                 .dim = dim,
                                 .mask = Mask::causal(),
                                 .dtype = DType::f16});
  }
}

// Few rows and up to 16 parts of the keys, also such as see nothing.
TEST_P(AttentionKernelsTest, FewRowsOverManyKeys) {
  Thinned thinned(3);
  for (std::int64_t dim : {80, 256}) {
    for (std::int64_t n_k : {65, 1100}) {
      for (const Mask& mask :
           {Mask::full(), Mask::causal(), Mask::window(900, 0), Mask::sinks(70, 40),
            Mask::blocks(BlockMask::strided(64, 1, 18, 0, 7))}) {
        if (!thinned.takes_next()) continue;
        check_attention_case(ctx(), {.n_q = 2,
                                     .n_k = n_k,
                                     .heads = 6,
                                     .kv_heads = 2,
                                     .dim = dim,
                                     .mask = mask,
                                     .dtype = DType::bf16});
      }
    }
  }
}

// A sequence's bits do not depend on how many are beside it.
TEST_P(AttentionKernelsTest, SameBitsInEveryBatch) {
  struct Size {
    std::int64_t batch, n_q;
  };
  // 70 sequences have so many key heads that a GPU would not split their keys as those of one.
  for (const auto& [batch, n_q] : {Size{3, 1}, Size{3, 40}, Size{kSanitized ? 3 : 70, 1}}) {
    const AttentionCase c{.batch = batch,
                          .n_q = n_q,
                          .n_k = kSanitized ? 300 : 700,
                          .heads = 4,
                          .kv_heads = 2,
                          .dim = 80,
                          .mask = Mask::causal(),
                          .dtype = DType::f16};
    AttentionTensors all(ctx(), c), one(ctx(), c);
    all.args.fixed_splits = one.args.fixed_splits = true;
    attention(ctx(), all.args);
    for (std::int64_t b = 0; b < c.batch; ++b) {
      AttentionArgs args = one.args;
      for (Tensor* tensor : {&args.q, &args.k, &args.v, &args.out, &args.lse}) {
        *tensor = tensor->slice(0, b, b + 1);
      }
      attention(ctx(), args);
    }
    EXPECT_TRUE(identical(all.out.read(), one.out.read()));
    EXPECT_TRUE(identical(all.lse.read(), one.lse.read()));
  }
}

// Tiles that a block of queries does not see are not touched: a NaN in them does not show.
TEST_P(AttentionKernelsTest, SparseMasksVisitTheirTilesOnly) {
  for (std::int64_t block : {64, 128}) {
    if (kSanitized && block > 64) break;  // blocks of 128 are for Hopper, which is not emulated
    const BlockMask pattern = BlockMask::strided(block, 4, 4, 0, 3);
    const AttentionCase c{.n_q = 4 * block,
                          .n_k = 4 * block,
                          .heads = 1,
                          .kv_heads = 1,
                          .dim = 16,
                          .mask = Mask::blocks(pattern),
                          .dtype = DType::f16};
    check_hidden_blocks_stay_unread(ctx(), c, pattern, block);
  }
}

TEST_P(AttentionKernelsTest, ANanInAKeyShowsInTheRowsThatSeeIt) {
  for (std::int64_t n_q : {4, 70}) {
    const AttentionCase c{.n_q = n_q,
                          .n_k = 70,
                          .heads = 1,
                          .kv_heads = 1,
                          .mask = Mask::causal(),
                          .dtype = DType::f16};
    AttentionTensors t(ctx(), c);
    Array keys = t.k.read();
    keys.at(0, 68, 0, 5) = NAN;
    const TestTensor k(ctx(), keys, DType::f16);
    t.args.k = k;
    for_each_attention_kernel(ctx(), t.args, [&] {
      attention(ctx(), t.args);
      const Array out = t.out.read();
      for (std::int64_t i = 0; i < n_q; ++i) {
        EXPECT_EQ(std::isnan(out.at(0, i, 0, 0)), i + (70 - n_q) >= 68) << i;
      }
    });
  }
}

// Keys of a page that is not in the pool are NaN; only a GPU takes such a page.
TEST_P(AttentionKernelsTest, PagesThatAreNotThereShowAsNan) {
  if (GetParam().is_cpu()) GTEST_SKIP() << "the CPU refuses them";
  for (std::int64_t n_q : {2, 60}) {
    AttentionTensors t(
        ctx(), {.n_q = n_q, .n_k = 8, .heads = 2, .kv_heads = 1, .dim = 80, .dtype = DType::f16});
    AttentionTensors pool(
        ctx(), {.batch = 4, .n_k = 32, .heads = 1, .kv_heads = 1, .dim = 80, .dtype = DType::f16});
    for (const double page : {-1.0, 4.0, 3.0}) {
      Array table({1, 3}, 0.0);
      table.at(0, 1) = page;
      const TestTensor pages(ctx(), table, DType::i32);
      const TestTensor lengths(ctx(), Array({1}, 90.0), DType::i32);
      t.args.k = pool.k;
      t.args.v = pool.v;
      t.args.pages = {pages, lengths};
      for_each_attention_kernel(ctx(), t.args, [&] {
        attention(ctx(), t.args);
        EXPECT_EQ(std::isnan(t.out.read().at(0, 0, 0, 79)), page != 3.0);
      });
    }
  }
}

// Keys far from the start, and more of them than a rotation is carried over.
TEST_P(AttentionKernelsTest, RopeOnReadAgainstTheReference) {
  for (RopeStyle style : {RopeStyle::half_split, RopeStyle::interleaved}) {
    for (std::int64_t dims : {20, 80}) {
      const std::vector<float> frequencies = rope_inv_freq(dims);
      Array inv_freq({dims / 2});
      std::copy(frequencies.begin(), frequencies.end(), inv_freq.data.begin());
      const TestTensor frequency_tensor(ctx(), inv_freq, DType::f32);
      for (std::int64_t n_q : {1, 30}) {
        AttentionTensors t(ctx(), {.n_q = n_q,
                                   .n_k = kSanitized ? 400 : 1100,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .dim = 80,
                                   .mask = Mask::sinks(4, 300),
                                   .dtype = DType::f16});
        t.args.rope_on_read = {frequency_tensor, style};
        reference::AttentionInputs in = t.inputs();
        in.inv_freq = inv_freq;
        in.rope_style = style;
        const reference::AttentionResult exact = reference::attention(in);
        for_each_attention_kernel(ctx(), t.args, [&] {
          attention(ctx(), t.args);
          EXPECT_TRUE(close(t.out.read(), exact.out, 2e-3, 1e-3));
          EXPECT_TRUE(close(t.lse.read(), exact.lse, 1e-4, 1e-3));
        });
      }
    }
  }
}

TEST_P(AttentionKernelsTest, TheTraceTellsWhichKernelRan) {
  if (GetParam().is_cpu()) GTEST_SKIP() << "of a GPU";
  const struct {
    AttentionCase c;
    const char* kernel;
  } cases[] = {
      {{.n_q = 1, .heads = 8, .kv_heads = 2, .dtype = DType::f16}, "cuda.split"},
      {{.n_q = 4, .heads = 8, .kv_heads = 2, .dtype = DType::f16}, "cuda.split"},
      {{.n_q = 90, .heads = 8, .kv_heads = 2, .dim = 33, .dtype = DType::bf16}, "cuda.mma"},
      {{.n_q = 5, .heads = 8, .kv_heads = 2, .dtype = DType::f32}, "cuda.plain"},
  };
  for (const auto& [c, kernel] : cases) {
    AttentionTensors t(ctx(), c);
    ctx().trace().clear();
    attention(ctx(), t.args);
    EXPECT_EQ(ctx().trace().calls("attention", kernel), 1) << c.text();
  }
}

TEST_P(AttentionKernelsTest, DenseBatchesHaveAKernelOfTheirOwnOnEveryGpu) {
  if constexpr (kHaveCuda) {
    const struct {
      AttentionCase c;
      const char* kernel;
    } cases[] = {
        {{.n_q = 90, .dtype = DType::bf16}, "cuda.dense"},
        {{.n_q = 90, .mask = Mask::window(9, 0), .dtype = DType::f16}, "cuda.dense"},
        {{.n_q = 90, .mask = Mask::sinks(2, 9), .dtype = DType::f16}, "cuda.mma"},
        {{.n_q = 90, .dim = 60, .dtype = DType::f16}, "cuda.mma"},
        {{.n_q = 90, .heads = 4, .dtype = DType::f16}, "cuda.mma"},
        {{.n_q = 128, .heads = 4, .dtype = DType::f16}, "cuda.dense"},
        {{.n_q = 90, .dtype = DType::f16, .scale = -1.f}, "cuda.mma"},
        {{.n_q = 90, .dtype = DType::f16, .softcap = 5.f}, "cuda.mma"},
        {{.n_q = 90, .dtype = DType::f16, .dropout = {.p = 0.5f}}, "cuda.mma"},
        {{.n_q = 16, .dtype = DType::f16}, "cuda.split"},
    };
    for (const auto& [c, kernel] : cases) {
      const AttentionTensors t(ctx(), c);
      EXPECT_STREQ(cuda::portable_attention_kernels(t.args).front(), kernel) << c.text();
    }
  } else {
    GTEST_SKIP() << "of a build with CUDA";
  }
}

}  // namespace
}  // namespace tessera::test
