// What several ranks compute together, on one GPU: the ranks are threads (support/thread_ranks.h),
// because NCCL refuses two ranks on one GPU. On the CPU the same tests run with threads too.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "model/checkpoint/random_weights.h"
#include "reference/parity.h"
#include "support/attention_case.h"
#include "support/devices.h"
#include "support/ring_case.h"
#include "support/small_models.h"
#include "support/thread_ranks.h"

namespace tessera::test {
namespace {

class RanksTest : public DeviceTest {
 protected:
  // The dtypes in which a GPU has kernels of different kinds; the CPU's are tested under mpirun.
  std::vector<DType> dtypes() const {
    if (GetParam().is_cpu()) return {DType::f32};
    return {DType::f32, DType::f16, DType::bf16};
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, RanksTest, testing::ValuesIn(test_devices()), device_name);

// ---- attention around the ring ------------------------------------------------------------------

TEST_P(RanksTest, RingAttentionUnderEveryMask) {
  for (const int size : {2, 3}) {
    run_ranks(size, GetParam(), [&](const ThreadRank& rank) {
      for (const std::int64_t tokens : {1, 75}) {
        for (const Mask& mask : every_mask(tokens, tokens)) {
          SCOPED_TRACE(std::to_string(tokens) + " " + mask.to_string());
          check_ring_forward(rank.ctx, rank.ranks, {.tokens = tokens, .mask = mask});
          check_ring_backward(rank.ctx, rank.ranks, {.tokens = tokens, .mask = mask});
        }
      }
    });
  }
}

TEST_P(RanksTest, RingAttentionInEveryDtype) {
  run_ranks(4, GetParam(), [&](const ThreadRank& rank) {
    for (const DType dtype : dtypes()) {
      for (const Mask& mask : {Mask::causal(), Mask::window(40, 0)}) {
        SCOPED_TRACE(std::string(name(dtype)) + " " + mask.to_string());
        const RingCase c{.tokens = 301, .mask = mask, .dtype = dtype, .kv_heads = 1, .dim = 64};
        check_ring_forward(rank.ctx, rank.ranks, c);
        check_ring_backward(rank.ctx, rank.ranks, c);
      }
    }
  });
}

// ---- a context that is spread -------------------------------------------------------------------

TEST_P(RanksTest, LongPromptsAreSpread) {
  ModelConfig windowed = small_config(false, 1);
  windowed.windows = {100, 0};  // one layer with a window, one without
  for (const int size : {2, 3}) {
    run_ranks(size, GetParam(), [&](const ThreadRank& rank) {
      for (const ModelConfig& config : {small_config(true, 1), windowed}) {
        expect_long_prompts_of_the_whole(rank.ctx, rank.ranks, config);
      }
    });
  }
}

TEST_P(RanksTest, LongPromptsInSixteenBits) {
  if (GetParam().is_cpu()) GTEST_SKIP() << "for kernels of 16 bits";
  run_ranks(2, GetParam(), [&](const ThreadRank& rank) {
    for (const DType dtype : {DType::f16, DType::bf16}) {
      expect_long_prompts_of_the_whole(rank.ctx, rank.ranks, small_config(false, 1), dtype);
    }
  });
}

TEST_P(RanksTest, TokensOverASpreadCache) {
  const std::vector<std::int32_t> prompt{5, 300, 7, 8, 330, 0, 45};
  run_ranks(3, GetParam(), [&](const ThreadRank& rank) {
    for (const bool neox : {true, false}) {
      const ModelConfig config = small_config(neox, 1);
      const auto whole = model::make_random_model(rank.ctx, config, {.dtype = DType::f32});
      const auto part = model::make_random_model(
          rank.ctx, config, {.dtype = DType::f32, .context_parallel = &rank.ranks});
      EXPECT_EQ(reference::generate_greedy(rank.ctx, *part, prompt, 90).ids,
                reference::generate_greedy(rank.ctx, *whole, prompt, 90).ids);
    }
  });
}

TEST_P(RanksTest, AnEngineLeadsASpreadContext) {
  run_ranks(2, GetParam(), [&](const ThreadRank& rank) {
    const ModelConfig config = small_config(false, 1);
    auto part = model::make_random_model(rank.ctx, config, {.context_parallel = &rank.ranks});
    expect_answers_of_the_whole(rank.ctx, rank.ranks, rank.channel, config, std::move(part), 1);
  });
}

// ---- a model that is split ----------------------------------------------------------------------

TEST_P(RanksTest, ASplitModelHasTheLogitsOfTheWhole) {
  const std::vector<std::int32_t> prompt{5, 300, 7, 8, 330, 0, 45};
  for (const int size : {2, 3}) {
    run_ranks(size, GetParam(), [&](const ThreadRank& rank) {
      for (const bool neox : {true, false}) {
        for (const bool packed : {false, true}) {
          model::RandomModelOptions options{.dtype = DType::f32};
          if (packed) {
            options.pack = QuantizeOptions{.format = Format::int4, .search = ScaleSearch::from_max};
          }
          const ModelConfig config = small_config(neox, size);
          const auto whole = model::make_random_model(rank.ctx, config, options);
          options.tensor_parallel = &rank.ranks;
          const auto part = model::make_random_model(rank.ctx, config, options);
          const auto expected = reference::observe(rank.ctx, *whole, prompt);
          const auto actual = reference::observe(rank.ctx, *part, prompt);
          EXPECT_LT(reference::compare(actual.logits, expected.logits).max_abs, 1e-4);
        }
      }
    });
  }
}

TEST_P(RanksTest, AnEngineLeadsASplitModel) {
  run_ranks(2, GetParam(), [&](const ThreadRank& rank) {
    const ModelConfig config = small_config(true, 2);
    auto part = model::make_random_model(rank.ctx, config, {.tensor_parallel = &rank.ranks});
    expect_answers_of_the_whole(rank.ctx, rank.ranks, rank.channel, config, std::move(part), 2);
  });
}

}  // namespace
}  // namespace tessera::test
