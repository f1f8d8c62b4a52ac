// One request through the engine's steps: what is counted, what is traced, what is left behind.
#include "profile/engine_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "support/files.h"
#include "tessera/model.h"

namespace tessera::profile {
namespace {

class EngineRunTest : public testing::Test {
 protected:
  EngineRunTest()
      : ctx_({.threads = 2}), model_(load_model(ctx_, test::data_path("goldens/llama-gqa"))) {}

  std::int64_t calls(const PhaseRun& phase, const std::string& op) const {
    std::int64_t count = 0;
    for (const TraceEntry& entry : phase.entries) count += entry.op == op ? entry.calls : 0;
    return count;
  }

  Context ctx_;
  std::unique_ptr<Model> model_;
};

TEST_F(EngineRunTest, CountsTokensAndSteps) {
  const EngineRun run = run_engine(ctx_, *model_, {.prompt_tokens = 20, .decode_tokens = 7});
  EXPECT_EQ(run.prefill.tokens, 20);
  EXPECT_EQ(run.prefill.steps, 1);
  EXPECT_EQ(run.decode.tokens, 7);
  EXPECT_EQ(run.decode.steps, 7);
  EXPECT_GT(run.prefill.seconds, 0);
  EXPECT_GT(run.decode.seconds, 0);
  EXPECT_TRUE(run.decode.entries.empty());  // nothing is traced unless asked for
}

TEST_F(EngineRunTest, TracesEachPhaseApart) {
  const EngineRun run =
      run_engine(ctx_, *model_, {.prompt_tokens = 20, .decode_tokens = 7, .trace = true});
  const std::int64_t layers = model_->config().layers;
  EXPECT_EQ(calls(run.prefill, "attention"), layers);
  EXPECT_EQ(calls(run.decode, "append_attention"), 7 * layers);
  EXPECT_EQ(calls(run.decode, "embedding"), 7);
  double traced = 0;
  for (const TraceEntry& entry : run.decode.entries) traced += entry.seconds;
  EXPECT_LE(traced, run.decode.seconds);
  EXPECT_GT(run.decode.tracing_seconds, 0);
  EXPECT_FALSE(ctx_.trace().enabled());
  EXPECT_TRUE(ctx_.trace().entries().empty());
}

TEST_F(EngineRunTest, KeepsLayersApartIfAsked) {
  const EngineRun run =
      run_engine(ctx_, *model_,
                 {.prompt_tokens = 20, .decode_tokens = 3, .trace = true, .separate_layers = true});
  const std::int64_t layers = model_->config().layers;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const auto of_layer = std::count_if(
        run.prefill.entries.begin(), run.prefill.entries.end(),
        [&](const TraceEntry& entry) { return entry.op == "attention" && entry.layer == layer; });
    EXPECT_EQ(of_layer, 1) << layer;
  }
  for (const TraceEntry& entry : run.decode.entries) {
    if (entry.op == "embedding") {
      EXPECT_EQ(entry.layer, TraceEntry::kNoLayer);
    }
  }
}

TEST_F(EngineRunTest, MedianIsOfOnePhase) {
  std::vector<EngineRun> runs(3);
  runs[0].decode.seconds = 3, runs[1].decode.seconds = 1, runs[2].decode.seconds = 2;
  EXPECT_EQ(median_phase(runs, &EngineRun::decode).seconds, 2);
  EXPECT_EQ(repeat_engine(ctx_, *model_, {.prompt_tokens = 4, .decode_tokens = 2}, 3).size(), 3u);
}

TEST_F(EngineRunTest, AllPromptAndNoDecoding) {
  const EngineRun run = run_engine(ctx_, *model_, {.prompt_tokens = 12, .decode_tokens = 0});
  EXPECT_EQ(run.decode.steps, 0);
  EXPECT_EQ(run.decode.tokens, 0);
}

}  // namespace
}  // namespace tessera::profile
