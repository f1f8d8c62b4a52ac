// The table of attention kernels: which one is chosen for a call, and what its plan takes of the
// workspace. Planning needs no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/checked.h"
#include "core/workspace.h"
#include "cuda/attention/kernel.h"
#include "cuda/runtime/hopper_kernels.h"

namespace tessera::cuda {
namespace {

constexpr DeviceLimits kHopper{.capability = 90, .multiprocessors = 132, .shared_bytes = 227 << 10};
constexpr DeviceLimits kAmpere{.capability = 80, .multiprocessors = 108, .shared_bytes = 163 << 10};

struct Shape {
  std::int64_t n_q, n_k = 300, heads = 8, kv_heads = 8, dim = 64;
  DType dtype = DType::bf16;
};

// Nobody looks at the data of a call that is only planned.
AttentionArgs args_of(const Shape& s) {
  const Tensor q(nullptr, s.dtype, {1, s.n_q, s.heads, s.dim}, Device::cuda());
  const Tensor k(nullptr, s.dtype, {1, s.n_k, s.kv_heads, s.dim}, Device::cuda());
  return {.q = q, .k = k, .v = k, .out = q};
}

std::string_view chosen(const DeviceLimits& gpu, const AttentionArgs& args) {
  return plan_attention(gpu, args).kernel->name;
}

const AttentionKernel& kernel_named(std::string_view name) {
  const auto table = attention_kernel_table();
  return *std::find_if(table.begin(), table.end(),
                       [&](const AttentionKernel& kernel) { return kernel.name == name; });
}

TEST(AttentionTable, EveryNameIsThereOnce) {
  std::string names;
  for (const AttentionKernel& kernel : attention_kernel_table()) {
    names += std::string(kernel.name) + " ";
  }
  EXPECT_EQ(names,
            "cuda.split.run cuda.hopper cuda.hopper+split cuda.hopper.decode cuda.split.codes "
            "cuda.split.rotated cuda.split cuda.mma+split cuda.dense cuda.mma cuda.plain ");
}

TEST(AttentionTable, ChoosesByRowsDtypeAndLayout) {
  EXPECT_EQ(chosen(kAmpere, args_of({.n_q = 16})), "cuda.split");
  EXPECT_EQ(chosen(kAmpere, args_of({.n_q = 17})), "cuda.dense");
  EXPECT_EQ(chosen(kAmpere, args_of({.n_q = 17, .dim = 60})), "cuda.mma");
  EXPECT_EQ(chosen(kAmpere, args_of({.n_q = 17, .dtype = DType::f32})), "cuda.plain");
  // Eight heads share a key head: two queries are 16 rows, three are 24.
  EXPECT_EQ(chosen(kAmpere, args_of({.n_q = 2, .kv_heads = 1})), "cuda.split");
  EXPECT_EQ(chosen(kAmpere, args_of({.n_q = 3, .kv_heads = 1})), "cuda.mma");
  EXPECT_EQ(chosen(kAmpere, args_of({.n_q = 17, .n_k = std::int64_t{1} << 29})), "cuda.plain");

  std::int32_t offsets[3];
  AttentionArgs ragged = args_of({.n_q = 17});
  ragged.q_offsets = ragged.k_offsets = Tensor(offsets, DType::i32, {3}, Device::cuda());
  EXPECT_EQ(chosen(kAmpere, ragged), "cuda.mma+split");
}

AttentionArgs args_of_codes(const Shape& s, DType stored) {
  AttentionArgs args = args_of(s);
  args.k.dtype = args.v.dtype = stored;
  args.k_scales = args.v_scales =
      Tensor(nullptr, DType::f32, {1, s.kv_heads, s.n_k}, Device::cuda());
  return args;
}

// Codes that are decoded in registers, also beside prompts; others go the way of rare options.
TEST(AttentionTable, FewRowsOverCodesHaveAKernelOfTheirOwn) {
  const auto codes = args_of_codes;
  for (DType stored : {DType::i8, DType::f8e4m3}) {
    for (std::int64_t dim : {16, 64, 80, 96, 112, 128}) {
      const AttentionArgs args = codes({.n_q = 2, .kv_heads = 1, .dim = dim}, stored);
      EXPECT_EQ(chosen(kAmpere, args), "cuda.split.codes") << dim;
      EXPECT_EQ(chosen(kHopper, args), "cuda.split.codes") << dim;
      EXPECT_TRUE(plan_attention(kAmpere, args).options.codes_in_registers);
    }
    EXPECT_EQ(chosen(kAmpere, codes({.n_q = 17}, stored)), "cuda.mma");
    EXPECT_EQ(chosen(kAmpere, codes({.n_q = 1, .dim = 72}, stored)), "cuda.split");
    EXPECT_EQ(chosen(kAmpere, codes({.n_q = 1, .dim = 256}, stored)), "cuda.split");
    AttentionArgs capped = codes({.n_q = 1}, stored);
    capped.softcap = 5.f;
    EXPECT_EQ(chosen(kAmpere, capped), "cuda.split");

    std::int32_t offsets[3];
    AttentionArgs ragged = codes({.n_q = 17}, stored);
    ragged.q_offsets = ragged.k_offsets = Tensor(offsets, DType::i32, {3}, Device::cuda());
    EXPECT_EQ(chosen(kAmpere, ragged), "cuda.mma+split");
    EXPECT_TRUE(plan_attention(kAmpere, ragged).options.codes_in_registers);
  }
  EXPECT_FALSE(plan_attention(kAmpere, args_of({.n_q = 1})).options.codes_in_registers);
}

// A mask that does not hide later keys needs all of them: such a run is not taken in tiles.
TEST(AttentionTable, RunsUnderMasksThatHideLaterKeysAreTakenInTiles) {
  const AttentionKernel& run = kernel_named("cuda.split.run");
  const auto takes = [&](const Mask& mask, std::int64_t n_q) {
    AttentionArgs args = args_of({.n_q = n_q, .heads = 8, .kv_heads = 2});
    args.mask = mask;
    return run.takes(AttentionRequest(kAmpere, args));
  };
  EXPECT_TRUE(takes(Mask::causal(), 5));
  EXPECT_FALSE(takes(Mask::causal(), 4));  // one block has all rows
  EXPECT_TRUE(takes(Mask::causal(), 16));
  EXPECT_FALSE(takes(Mask::causal(), 17));
  EXPECT_TRUE(takes(Mask::window(9, 0), 5));
  EXPECT_FALSE(takes(Mask::window(9, 1), 5));
  EXPECT_FALSE(takes(Mask::full(), 5));
  // Three tiles of four queries, whose blocks share what one key head would have.
  AttentionArgs args = args_of({.n_q = 9, .n_k = 4096, .heads = 8, .kv_heads = 2});
  args.mask = Mask::causal();
  const AttentionPlan plan = run.plan(AttentionRequest(kAmpere, args));
  EXPECT_EQ(plan.partials.tiles.count, 3);
  EXPECT_EQ(plan.partials.tiles.queries, 4);
  EXPECT_EQ(plan.partials.slots, 6);
  EXPECT_EQ(plan.partials.rows, 16);
}

// Keys that are rotated as they are read, in registers where pairs allow it.
TEST(AttentionTable, FewRowsOverKeysThatAreRotatedHaveAKernelOfTheirOwn) {
  float frequencies[64];
  const auto rotated = [&](const Shape& s, std::int64_t pairs, RopeStyle style) {
    AttentionArgs args = args_of(s);
    args.rope_on_read = {Tensor(frequencies, DType::f32, {pairs}, Device::cuda()), style};
    return args;
  };
  const RopeStyle halves = RopeStyle::half_split, neighbours = RopeStyle::interleaved;
  for (const DeviceLimits& gpu : {kAmpere, kHopper}) {
    EXPECT_EQ(chosen(gpu, rotated({.n_q = 1}, 32, halves)), "cuda.split.rotated");
    EXPECT_EQ(chosen(gpu, rotated({.n_q = 1}, 5, neighbours)), "cuda.split.rotated");
    EXPECT_EQ(chosen(gpu, rotated({.n_q = 1}, 5, halves)), "cuda.split");
    EXPECT_EQ(chosen(gpu, rotated({.n_q = 1, .dim = 60}, 30, halves)), "cuda.split");
    EXPECT_EQ(chosen(gpu, rotated({.n_q = 1, .dim = 256}, 64, halves)), "cuda.split");
    EXPECT_EQ(chosen(gpu, rotated({.n_q = 17}, 32, halves)), "cuda.mma");
  }
}

TEST(AttentionTable, HopperIsChosenFromSeventeenQueriesOnAndCanBeForcedBelow) {
  if (!has_hopper_kernels(kHopper)) GTEST_SKIP() << "this build has no code for 90a";
  EXPECT_EQ(chosen(kHopper, args_of({.n_q = 17})), "cuda.hopper");
  EXPECT_EQ(chosen(kHopper, args_of({.n_q = 16})), "cuda.split");
  EXPECT_EQ(chosen(kHopper, args_of({.n_q = 16, .heads = 16})), "cuda.mma");
  const AttentionKernel& hopper = kernel_named("cuda.hopper");
  EXPECT_TRUE(hopper.takes(AttentionRequest(kHopper, args_of({.n_q = 1}))));
  EXPECT_FALSE(hopper.takes(AttentionRequest(kAmpere, args_of({.n_q = 17}))));
  EXPECT_FALSE(hopper.takes(AttentionRequest(kHopper, args_of({.n_q = 17, .dim = 60}))));
}

// Few rows over many keys. Shares of a batch depend on the batch.
TEST(AttentionTable, HopperDecodesOverManyKeys) {
  if (!has_hopper_kernels(kHopper)) GTEST_SKIP() << "this build has no code for 90a";
  const auto args = [](std::int64_t n_k, std::int64_t dim) {
    return args_of({.n_q = 1, .n_k = n_k, .heads = 32, .dim = dim});
  };
  EXPECT_EQ(chosen(kHopper, args(16384, 128)), "cuda.hopper.decode");
  EXPECT_EQ(chosen(kHopper, args(16383, 128)), "cuda.split");
  EXPECT_EQ(chosen(kHopper, args(16384, 96)), "cuda.split");
  EXPECT_EQ(chosen(kAmpere, args(16384, 128)), "cuda.split");
  std::int32_t numbers[2];
  AttentionArgs in_pages = args(64, 128);
  in_pages.pages = {.table = Tensor(numbers, DType::i32, {1, 256}, Device::cuda()),
                    .lengths = Tensor(numbers, DType::i32, {1}, Device::cuda()),
                    .holes = Tensor(numbers, DType::i32, {1, 2}, Device::cuda())};
  EXPECT_EQ(chosen(kHopper, in_pages), "cuda.hopper.decode");
  in_pages.mask = Mask::window(99, 0);  // of keys, not of slots
  EXPECT_EQ(chosen(kHopper, in_pages), "cuda.split");
  AttentionArgs fixed = args(16384, 128);
  fixed.fixed_splits = true;
  EXPECT_EQ(chosen(kHopper, fixed), "cuda.split");
  // What is counted once must do for fewer keys too.
  const AttentionPlan many = plan_attention(kHopper, args(16384, 128));
  const AttentionPlan few = plan_attention(kHopper, args(16383, 128));
  EXPECT_GE(many.kernel->scratch(many), few.kernel->scratch(few));
}

// Where a row of one head is no whole piece of 128 bytes, two heads are taken at a time, and have
// to lie side by side.
TEST(AttentionTable, HopperDecodesOverManyCodes) {
  if (!has_hopper_kernels(kHopper)) GTEST_SKIP() << "this build has no code for 90a";
  for (DType stored : {DType::i8, DType::f8e4m3}) {
    const auto args = [&](std::int64_t n_k, std::int64_t kv_heads, std::int64_t dim) {
      return args_of_codes({.n_q = 1, .n_k = n_k, .heads = 24, .kv_heads = kv_heads, .dim = dim},
                           stored);
    };
    const auto least = [](std::int64_t kv_heads, std::int64_t dim) {
      return ceil_div(std::int64_t{1} << 23, kv_heads * dim);
    };
    for (std::int64_t dim : {64, 80, 128}) {
      const std::int64_t n_k = least(8, dim);
      EXPECT_EQ(chosen(kHopper, args(n_k, 8, dim)), "cuda.hopper.decode") << dim;
      EXPECT_EQ(chosen(kHopper, args(n_k - 1, 8, dim)), "cuda.split.codes") << dim;
      EXPECT_EQ(chosen(kAmpere, args(n_k, 8, dim)), "cuda.split.codes") << dim;
      const bool one_head = dim == 128;
      EXPECT_EQ(chosen(kHopper, args(least(3, dim), 3, dim)),
                one_head ? "cuda.hopper.decode" : "cuda.split.codes");
      EXPECT_EQ(plan_attention(kHopper, args(n_k, 8, dim)).decode.heads, one_head ? 1 : 2);
      AttentionArgs scattered = args(n_k, 8, dim);  // [batch, heads, rows, dim] in memory
      for (Tensor* tensor : {&scattered.k, &scattered.v}) {
        tensor->strides[1] = dim;
        tensor->strides[2] = n_k * dim;
      }
      EXPECT_EQ(chosen(kHopper, scattered), one_head ? "cuda.hopper.decode" : "cuda.split.codes");
    }
    EXPECT_EQ(chosen(kHopper, args(least(8, 96), 8, 96)), "cuda.split.codes");
  }
}

// In pages and ragged batches a sequence's own rows decide, so that its bits are the same in any
// company.
TEST(AttentionTable, HopperTakesPagesAndRaggedBatches) {
  if (!has_hopper_kernels(kHopper)) GTEST_SKIP() << "this build has no code for 90a";
  std::int32_t numbers[3];
  const Tensor offsets(numbers, DType::i32, {3}, Device::cuda());
  AttentionArgs ragged = args_of({.n_q = 17});
  ragged.q_offsets = ragged.k_offsets = offsets;
  EXPECT_EQ(chosen(kHopper, ragged), "cuda.hopper+split");
  AttentionArgs few = args_of({.n_q = 16});
  few.q_offsets = few.k_offsets = offsets;
  EXPECT_EQ(chosen(kHopper, few), "cuda.split");

  const auto paged = [&](std::int64_t n_q, std::int64_t page_size, std::int64_t dim) {
    AttentionArgs args =
        args_of({.n_q = n_q, .n_k = page_size, .heads = 8, .kv_heads = 2, .dim = dim});
    args.pages = {.table = Tensor(numbers, DType::i32, {1, 3}, Device::cuda()),
                  .lengths = Tensor(numbers, DType::i32, {1}, Device::cuda())};
    return args;
  };
  EXPECT_EQ(chosen(kHopper, paged(5, 64, 80)), "cuda.hopper");  // 20 rows of a key head
  EXPECT_EQ(chosen(kHopper, paged(4, 64, 80)), "cuda.split");
  EXPECT_EQ(chosen(kHopper, paged(100, 20, 80)), "cuda.mma");
  EXPECT_EQ(chosen(kHopper, paged(100, 64, 72)), "cuda.mma");
  AttentionArgs with_holes = paged(100, 64, 80);
  with_holes.pages.holes = Tensor(numbers, DType::i32, {1, 2}, Device::cuda());
  EXPECT_EQ(chosen(kHopper, with_holes), "cuda.mma");
}

TEST(AttentionTable, ScratchIsThePartialsOfSplitKeys) {
  const auto scratch = [](const Shape& shape) {
    const AttentionPlan plan = plan_attention(kAmpere, args_of(shape));
    return plan.kernel->scratch(plan);
  };
  // Four heads share a key head: two queries are eight rows of one slot.
  const AttentionPlan plan =
      plan_attention(kAmpere, args_of({.n_q = 2, .n_k = 4096, .heads = 4, .kv_heads = 1}));
  EXPECT_EQ(plan.partials.slots, 1);
  EXPECT_EQ(plan.partials.rows, 8);
  EXPECT_EQ(plan.partials.splits, split::most_splits(4096, split::split_rule(1, 1)));
  const std::int64_t rows = std::int64_t{plan.partials.splits} * 8;
  EXPECT_EQ(scratch({.n_q = 2, .n_k = 4096, .heads = 4, .kv_heads = 1}),
            ScratchSize().add<float>(rows * 64).add<float>(rows * 2).bytes());
  EXPECT_EQ(scratch({.n_q = 2, .n_k = 16}), 0);     // one block has all keys
  EXPECT_EQ(scratch({.n_q = 17, .n_k = 4096}), 0);  // nothing is split
}

}  // namespace
}  // namespace tessera::cuda
