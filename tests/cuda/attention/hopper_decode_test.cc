// cuda.hopper.decode on what it could get wrong: shares that end in the middle of a sequence or
// cover many of them, sequences of every length in pages of every size, and rows that are not the
// sequence's.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda/attention/choose.h"
#include "cuda/runtime/hopper_kernels.h"
#include "cuda/runtime/state.h"
#include "support/attention_case.h"
#include "support/devices.h"
#include "support/paged_keys.h"
#include "tessera/attention.h"

namespace tessera::test {
namespace {

constexpr char kHopperDecode[] = "cuda.hopper.decode";

class HopperDecodeTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    if (!cuda::has_hopper_kernels(cuda::state_of(ctx()).limits())) GTEST_SKIP() << "no Hopper GPU";
    cuda::force_attention_kernel(ctx(), kHopperDecode);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, HopperDecodeTest, testing::Values(Device::cuda()), device_name);

// Fewer steps than blocks, one more, and several for each; more and fewer key heads than blocks, so
// that heads are shared among blocks and blocks among heads.
TEST_P(HopperDecodeTest, SharesOfAnySize) {
  struct Size {
    std::int64_t batch, kv_heads, n_k;
  };
  for (const Size& size : {Size{1, 2, 1}, Size{1, 2, 33}, Size{1, 2, 4225}, Size{3, 8, 1000},
                           Size{2, 50, 97}, Size{5, 34, 200}, Size{150, 2, 40}, Size{1, 140, 70}}) {
    for (std::int64_t dim : {64, 80, 128}) {
      const std::int64_t group = dim == 80 ? 1 : 4;
      check_attention_case(ctx(), {.batch = size.batch,
                                   .n_q = 1,
                                   .n_k = size.n_k,
                                   .heads = group * size.kv_heads,
                                   .kv_heads = size.kv_heads,
                                   .dim = dim,
                                   .mask = Mask::causal(),
                                   .dtype = dim == 64 ? DType::f16 : DType::bf16});
    }
  }
}

TEST_P(HopperDecodeTest, RunsOfQueriesUnderEveryMask) {
  for (const Mask& mask : every_mask(4, 300)) {
    if (mask.kind() == Mask::Kind::blocks) continue;
    for (std::int64_t group : {1, 3, 4}) {
      check_attention_case(ctx(), {.batch = 2,
                                   .n_q = 4,
                                   .n_k = 300,
                                   .heads = 2 * group,
                                   .kv_heads = 2,
                                   .dim = 128,
                                   .mask = mask,
                                   .dtype = DType::bf16});
    }
  }
}

// Nothing, less than a step, whole steps, and many, in an order that leaves gaps.
const std::vector<std::int64_t> kDecodeLengths{0, 1, 700, 32, 0, 31, 33, 64, 1, 129, 16, 1500, 0};

// Sequences of every length in pages, whose slots behind the end hold NaN. Twice: the second call
// finds the counters of the first.
void check_pages(Context& ctx, std::int64_t dim, std::int64_t page_size, const Mask& mask,
                 const std::vector<Hole>& holes = {}) {
  SCOPED_TRACE(testing::Message() << "dim " << dim << " pages of " << page_size << " "
                                  << mask.to_string() << " holes " << holes.size());
  const std::int64_t sequences = std::ssize(kDecodeLengths), longest = 1500;
  const DType dtype = dim == 80 ? DType::f16 : DType::bf16;
  AttentionTensors t(ctx, {.batch = sequences,
                           .n_q = 2,
                           .n_k = 8,
                           .heads = 12,
                           .kv_heads = 4,
                           .dim = dim,
                           .mask = mask,
                           .dtype = dtype});
  const Paged paged(ctx, page_size, kDecodeLengths, random_normal({sequences, longest, 4, dim}, 5),
                    random_normal({sequences, longest, 4, dim}, 6), dtype, Layout::contiguous,
                    holes);
  paged.put_into(t.args);
  reference::AttentionInputs in = t.inputs();
  in.k = paged.k_pool->read();
  in.v = paged.v_pool->read();
  in.page_table = paged.table;
  in.lengths = array_of(kDecodeLengths);
  in.holes = paged.hole_values;
  const reference::AttentionResult exact = reference::attention(in);
  for (int turn = 0; turn < 2; ++turn) {
    attention(ctx, t.args);
    EXPECT_TRUE(close(t.out.read(), exact.out, epsilon(dtype), 2 * epsilon(dtype)));
    EXPECT_TRUE(good_lse(t.lse.read(), exact.lse));
    EXPECT_TRUE(t.out.surroundings_intact() && t.lse.surroundings_intact());
  }
}

TEST_P(HopperDecodeTest, PagesAndLengths) {
  for (std::int64_t dim : {64, 80, 128}) {
    for (std::int64_t page_size : {16, 32, 48, 64, 256}) {
      check_pages(ctx(), dim, page_size, page_size == 64 ? Mask::window(50, 0) : Mask::causal());
    }
  }
}

// Holes that begin and end anywhere, within a step and over many pages. What is in them is NaN.
TEST_P(HopperDecodeTest, Holes) {
  const std::vector<Hole> holes{{0, 0},   {4, 5},    {40, 500}, {0, 17},  {7, 1},
                                {32, 32}, {4, 28},   {64, 1},   {1, 100}, {100, 60},
                                {0, 128}, {700, 90}, {0, 3}};
  for (std::int64_t dim : {64, 80, 128}) {
    for (std::int64_t page_size : {16, 64}) {
      for (const Mask& mask : {Mask::causal(), Mask::full(), Mask::window(-1, 2)}) {
        check_pages(ctx(), dim, page_size, mask, holes);
      }
    }
  }
}

// The same bits every time, whoever comes last.
TEST_P(HopperDecodeTest, TwiceTheSameBits) {
  AttentionTensors t(ctx(), {.batch = 7,
                             .n_q = 1,
                             .n_k = 3001,
                             .heads = 8,
                             .kv_heads = 2,
                             .dim = 128,
                             .dtype = DType::bf16});
  attention(ctx(), t.args);
  const Array first = t.out.read();
  for (int turn = 0; turn < 5; ++turn) {
    attention(ctx(), t.args);
    EXPECT_TRUE(identical(t.out.read(), first));
  }
}

TEST_P(HopperDecodeTest, LeavesWhatItCannotDoToOthers) {
  const auto takes = [&](const AttentionArgs& args) {
    for (const std::string name : cuda::attention_kernels(ctx(), args)) {
      if (name == kHopperDecode) return true;
    }
    return false;
  };
  const AttentionCase few{.n_q = 1, .n_k = 300, .dtype = DType::bf16};
  AttentionTensors t(ctx(), few);
  EXPECT_TRUE(takes(t.args));
  t.args.fixed_splits = true;  // its shares depend on the batch
  EXPECT_FALSE(takes(t.args));
  AttentionCase narrow = few, many = few;
  narrow.dim = 72;
  many.n_q = 17;
  EXPECT_FALSE(takes(AttentionTensors(ctx(), narrow).args));
  EXPECT_FALSE(takes(AttentionTensors(ctx(), many).args));
}

}  // namespace
}  // namespace tessera::test
