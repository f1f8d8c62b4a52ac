// Fusion predicted and measured: what is counted. How near the two are is a figure of docs/results.
#include "profile/fusion.h"

#include <gtest/gtest.h>

#include "support/files.h"
#include "tessera/error.h"

namespace tessera::profile {
namespace {

TEST(Fusion, AddsTakeTimeAndTheGainFollowsFromIt) {
  Context ctx({.threads = 2});
  const auto model = load_model(ctx, test::data_path("goldens/neox-parallel"));
  const FusionGains gains =
      measure_fusion(ctx, *model, {.prompt_tokens = 16, .decode_tokens = 8}, 3);
  for (const FusionGain& gain : {gains.prefill, gains.decode}) {
    EXPECT_GT(gain.add_ms, 0);
    EXPECT_GT(gain.predicted, 0);
    EXPECT_NEAR(gain.measured, gain.apart_ms / gain.fused_ms - 1, 1e-12);
    EXPECT_LT(gain.predicted, 10);
  }
  // Nothing of the experiment is left.
  const EngineRun run =
      run_engine(ctx, *model, {.prompt_tokens = 4, .decode_tokens = 2, .trace = true});
  for (const TraceEntry& entry : run.decode.entries) EXPECT_NE(entry.op, "add");
}

TEST(Fusion, RefusesOtherDtypes) {
  Context ctx({.threads = 1});
  const auto model =
      load_model(ctx, test::data_path("goldens/neox-parallel"), {.dtype = DType::bf16});
  EXPECT_THROW(measure_fusion(ctx, *model, {.prompt_tokens = 4, .decode_tokens = 2}, 1), Error);
}

}  // namespace
}  // namespace tessera::profile
