// A step that does not call what its architecture promises is found: hand-made traces.
#include "profile/step_count.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "model/architectures/registry.h"
#include "profile/breakdown.h"

namespace tessera::profile {
namespace {

using model::StepCalls;
using model::StepKind;

ModelConfig neox() {
  ModelConfig config;
  config.architecture = "gpt_neox";
  config.layers = 3;
  return config;
}

std::vector<StepCalls> promise(StepKind kind) {
  return model::find_architecture(neox()).promised_calls(neox(), kind);
}

// A trace of steps that call what these promises say.
std::vector<TraceEntry> trace_of(const std::vector<std::vector<StepCalls>>& steps) {
  std::vector<TraceEntry> entries;
  for (const std::vector<StepCalls>& step : steps) {
    for (const StepCalls& op : step) {
      entries.push_back({.op = op.op,
                         .kernel = "cuda." + op.op,
                         .shapes = {},
                         .calls = op.calls,
                         .seconds = 1e-3,
                         .bytes = 1000,
                         .flops = 0});
    }
  }
  return entries;
}

std::vector<std::string> broken(const StepCount& count) {
  std::vector<std::string> ops;
  for (const OpCount& op : count.ops) {
    if (!op.is_kept()) ops.push_back(op.promised.op);
  }
  return ops;
}

TEST(StepCount, AStepThatKeepsItsPromiseHasNothingElse) {
  const std::pair<StepKind, int> kinds[] = {
      {StepKind::token, 1 + 7 + 13 + 3}, {StepKind::fused_layers, 3}, {StepKind::fused_token, 2}};
  for (const auto& [kind, total] : kinds) {
    const std::vector<TraceEntry> before = trace_of({promise(StepKind::prompt)}),
                                  after = trace_of({promise(StepKind::prompt), promise(kind)});
    const StepCount count = count_step(promise(kind), before, after);
    EXPECT_TRUE(broken(count).empty());
    EXPECT_EQ(count.others, 0);
    EXPECT_EQ(count.total, total);
  }
}

TEST(StepCount, AFusedCallThatDoesNotHappenIsFlagged) {
  const std::vector<TraceEntry> before = trace_of({promise(StepKind::prompt)}),
                                after =
                                    trace_of({promise(StepKind::prompt), promise(StepKind::token)});
  const StepCount count = count_step(promise(StepKind::fused_token), before, after);
  EXPECT_EQ(broken(count), (std::vector<std::string>{"decode_layers", "linear"}));
  EXPECT_EQ(count.others, 1 + 7 + 3);  // embedding, layer_norm, append_attention
}

TEST(StepCount, AFusedCallThatNobodyPlannedIsFlagged) {
  const std::vector<TraceEntry> after = trace_of({promise(StepKind::fused_token)});
  const StepCount count = count_step(promise(StepKind::token), {}, after);
  EXPECT_EQ(broken(count),
            (std::vector<std::string>{"embedding", "layer_norm", "linear", "append_attention"}));
  EXPECT_EQ(count.others, 1);
}

TEST(StepCount, AProfileListsTheFusedCallThatDidNotHappen) {
  const Ceilings machine{.read_bandwidth = 10e9, .f32_rate = 100e9, .matrix_rate = 400e9};
  const auto never_called = [&](StepKind ran, StepKind promised) {
    std::vector<std::string> ops;
    for (const BreakdownRow& row :
         break_down(trace_of({promise(ran)}), 10e-3, machine, promise(promised)).rows) {
      if (row.advice.starts_with("never called")) ops.push_back(row.op);
    }
    return ops;
  };
  EXPECT_EQ(never_called(StepKind::token, StepKind::fused_token),
            std::vector<std::string>{"decode_layers"});
  EXPECT_EQ(never_called(StepKind::fused_token, StepKind::token),
            (std::vector<std::string>{"embedding", "layer_norm", "append_attention"}));
  EXPECT_EQ(never_called(StepKind::fused_token, StepKind::fused_layers),
            std::vector<std::string>{"embedding"});
  for (const StepKind kind : {StepKind::prompt, StepKind::short_prompt, StepKind::token,
                              StepKind::fused_layers, StepKind::fused_token}) {
    EXPECT_TRUE(never_called(kind, kind).empty());
  }
}

}  // namespace
}  // namespace tessera::profile
