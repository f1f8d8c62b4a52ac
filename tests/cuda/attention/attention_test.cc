// What attention() does on a GPU and nowhere else: which kernel runs, and every kernel on the
// shapes it could get wrong, whether it would be chosen for them or not.
#include "tessera/attention.h"

#include <gtest/gtest.h>

#include "cuda/attention/choose.h"
#include "cuda/runtime/hopper_kernels.h"
#include "cuda/runtime/state.h"
#include "support/attention_case.h"
#include "support/devices.h"
#include "support/refusal.h"

namespace tessera::test {
namespace {

constexpr char kHopperAttention[] = "cuda.hopper", kPlainAttention[] = "cuda.plain";

class CudaAttentionTest : public DeviceTest {
 protected:
  void force(const char* kernel) { cuda::force_attention_kernel(ctx(), kernel); }
  // Runs it, and expects this kernel to have done it.
  void check(const AttentionCase& c, const char* kernel) {
    ctx().trace().clear();
    check_attention_case(ctx(), c);
    EXPECT_EQ(ctx().trace().calls("attention", kernel), 1) << c.text();
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, CudaAttentionTest, testing::Values(Device::cuda()), device_name);

TEST_P(CudaAttentionTest, AForcedKernelIsUsed) {
  force(kPlainAttention);
  check({.n_q = 200, .n_k = 200, .dim = 64, .dtype = DType::bf16}, kPlainAttention);
}

TEST_P(CudaAttentionTest, AKernelForcedOnWhatItDoesNotTakeRefuses) {
  force(kHopperAttention);
  AttentionTensors t(ctx(), {.dtype = DType::f32});
  EXPECT_TRUE(refuses([&] { attention(ctx(), t.args); },
                      "attention (q f32[1, 113, 2, 64] k f32[1, 113, 2, 64] full): the kernel "
                      "cuda.hopper cannot run this call; cuda.plain can"));
}

TEST_P(CudaAttentionTest, AKernelThatDoesNotExistCannotBeForced) {
  EXPECT_TRUE(refuses([&] { force("cuda.fast"); },
                      "there is no attention kernel cuda.fast; there are cuda.split.run, "
                      "cuda.hopper, cuda.hopper+split, cuda.hopper.decode, cuda.split.codes, "
                      "cuda.split.rotated, cuda.split, cuda.mma+split, cuda.dense, cuda.mma, "
                      "cuda.plain"));
}

// ---- Hopper ------------------------------------------------------------------------------------

class HopperAttentionTest : public CudaAttentionTest {
 protected:
  void SetUp() override {
    CudaAttentionTest::SetUp();
    if (IsSkipped()) return;
    if (!cuda::has_hopper_kernels(cuda::state_of(ctx()).limits())) GTEST_SKIP() << "no Hopper GPU";
    force(kHopperAttention);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, HopperAttentionTest, testing::Values(Device::cuda()),
                         device_name);

TEST_P(HopperAttentionTest, IsChosenForPrefill) {
  force("");
  check({.n_q = 64, .n_k = 64, .dim = 64, .dtype = DType::f16}, kHopperAttention);
  check({.n_q = 64, .n_k = 64, .dim = 128, .mask = Mask::causal(), .dtype = DType::bf16},
        kHopperAttention);
}

// Around the edges of its tiles, in both directions, under every kind of mask.
TEST_P(HopperAttentionTest, TileEdges) {
  for (std::int64_t dim : {64, 128}) {
    for (std::int64_t n_q : {1, 65, 193}) {
      for (std::int64_t n_k : {1, 128, 129, 353}) {
        for (const Mask& mask : {Mask::full(), Mask::causal(), Mask::window(40, 3),
                                 Mask::window(130, -1), Mask::sinks(5, 60)}) {
          check({.n_q = n_q,
                 .n_k = n_k,
                 .heads = 1,
                 .kv_heads = 1,
                 .dim = dim,
                 .mask = mask,
                 .dtype = DType::bf16},
                kHopperAttention);
        }
      }
    }
  }
}

TEST_P(HopperAttentionTest, EveryMask) {
  for (const Mask& mask : every_mask(200, 300)) {
    if (mask.kind() == Mask::Kind::blocks) continue;
    for (std::int64_t dim : {64, 128}) {
      check({.n_q = 200,
             .n_k = 300,
             .heads = 1,
             .kv_heads = 1,
             .dim = dim,
             .mask = mask,
             .dtype = DType::f16},
            kHopperAttention);
    }
  }
}

// Head dims with a kernel of their own, and others that are filled up to the next one.
TEST_P(HopperAttentionTest, HeadDims) {
  for (std::int64_t dim : {8, 40, 64, 72, 80, 88, 96, 112, 128, 136, 192, 256}) {
    for (DType dtype : {DType::f16, DType::bf16}) {
      for (const Mask& mask : {Mask::full(), Mask::causal()}) {
        check({.n_q = 70,
               .n_k = 190,
               .heads = 1,
               .kv_heads = 1,
               .dim = dim,
               .mask = mask,
               .dtype = dtype},
              kHopperAttention);
      }
    }
  }
}

// Without a mask, many keys have larger tiles than few: around the edges of these.
TEST_P(HopperAttentionTest, ManyKeys) {
  for (std::int64_t dim : {80, 128}) {
    for (std::int64_t n_q : {1, 129}) {
      for (std::int64_t n_k : {1024, 1056, 1057}) {
        check({.n_q = n_q,
               .n_k = n_k,
               .heads = 1,
               .kv_heads = 1,
               .dim = dim,
               .dtype = n_q == 1 ? DType::f16 : DType::bf16},
              kHopperAttention);
      }
    }
  }
}

// More items than the GPU has multiprocessors: blocks take several, of different lengths.
TEST_P(HopperAttentionTest, ManyItems) {
  for (const Mask& mask : {Mask::full(), Mask::causal()}) {
    check({.batch = 3,
           .n_q = 200,
           .n_k = 130,
           .heads = 24,
           .kv_heads = 4,
           .dim = 64,
           .mask = mask,
           .dtype = DType::bf16},
          kHopperAttention);
  }
}

TEST_P(HopperAttentionTest, LayoutsThatTheCopyEngineTakes) {
  check({.batch = 2,
         .n_q = 100,
         .n_k = 130,
         .heads = 6,
         .kv_heads = 2,
         .mask = Mask::causal(),
         .dtype = DType::bf16,
         .layout = Layout::permuted},
        kHopperAttention);
  // Heads of q, k and v side by side in one tensor, as one product over them leaves them.
  const TestTensor qkv(ctx(), random_normal({2, 150, 12, 64}, 4), DType::bf16);
  const TestTensor out = TestTensor::poisoned(ctx(), {2, 150, 4, 64}, DType::bf16);
  const Tensor q = qkv.view().slice(2, 0, 4), k = qkv.view().slice(2, 4, 8),
               v = qkv.view().slice(2, 8, 12);
  attention(ctx(), {.q = q, .k = k, .v = v, .out = out, .mask = Mask::causal()});
  const Array all = qkv.read();
  const auto part = [&](std::int64_t first) {
    Array result({2, 150, 4, 64});
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t i = 0; i < 150; ++i) {
        for (std::int64_t h = 0; h < 4; ++h) {
          for (std::int64_t d = 0; d < 64; ++d) {
            result.at(b, i, h, d) = all.at(b, i, first + h, d);
          }
        }
      }
    }
    return result;
  };
  const reference::AttentionInputs in{
      .q = part(0), .k = part(4), .v = part(8), .mask = Mask::causal()};
  EXPECT_TRUE(good(out.read(), reference::attention(in).out, plain_attention(in, DType::bf16)));
}

// Odd strides and offsets, and options that the kernel does not have, silently go to other kernels.
TEST_P(HopperAttentionTest, OthersTakeWhatItDoesNot) {
  force("");
  const AttentionCase cases[] = {
      {.dtype = DType::f32},
      {.dtype = DType::f16, .layout = Layout::sliced},
      {.dim = 33, .dtype = DType::f16},
      {.mask = Mask::causal(), .dtype = DType::f16, .softcap = 5.f},
      {.dtype = DType::f16, .scale = -0.2f},
      {.dtype = DType::bf16, .dropout = {0.3f, 1}},
  };
  for (const AttentionCase& c : cases) {
    ctx().trace().clear();
    check_attention_case(ctx(), c);
    EXPECT_EQ(ctx().trace().calls("attention", "cuda.hopper"), 0) << c.text();
  }
}

TEST_P(HopperAttentionTest, SameBitsTwice) {
  for (std::int64_t dim : {64, 128}) {
    const AttentionCase c{.batch = 4,
                          .n_q = 700,
                          .n_k = 700,
                          .heads = 16,
                          .kv_heads = 4,
                          .dim = dim,
                          .mask = Mask::causal(),
                          .dtype = DType::bf16};
    AttentionTensors a(ctx(), c), b(ctx(), c);
    attention(ctx(), a.args);
    attention(ctx(), b.args);
    EXPECT_TRUE(identical(a.out.read(), b.out.read()));
    EXPECT_TRUE(identical(a.lse.read(), b.lse.read()));
  }
}

// Scores that grow along the keys: the running sums have to be rescaled again and again.
TEST_P(HopperAttentionTest, GrowingScores) {
  for (DType dtype : {DType::f16, DType::bf16}) {
    const AttentionCase c{.n_q = 70, .n_k = 700, .heads = 1, .kv_heads = 1, .dtype = dtype};
    AttentionTensors t(ctx(), c);
    Array keys = t.k.read();
    for (std::int64_t j = 0; j < c.n_k; ++j) {
      for (std::int64_t d = 0; d < 64; ++d) {
        keys.at(0, j, 0, d) *= 0.1 + 0.02 * static_cast<double>(c.n_k - j);
      }
    }
    const TestTensor k(ctx(), keys, dtype);
    t.args.k = k;
    attention(ctx(), t.args);
    reference::AttentionInputs in = t.inputs();
    in.k = k.read();
    const reference::AttentionResult exact = reference::attention(in);
    EXPECT_TRUE(good(t.out.read(), exact.out, plain_attention(in, dtype)));
    EXPECT_TRUE(good_lse(t.lse.read(), exact.lse));
  }
}

}  // namespace
}  // namespace tessera::test
