// A step of a stream allocates nothing on the heap. Everything that changes from token to token
// lies in the Context's workspace, in the cache and in the Sampler. These are sized before the
// first token.
//
// Most tests here run the pass and the draw alone. The last runs generate(), whose lists of ids
// grow now and then, and hold twice as many each time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/workspace.h"
#include "engine/forward_ids.h"
#include "engine/step_runner.h"
#include "support/allocations.h"
#include "support/devices.h"
#include "support/files.h"
#include "support/random_neox.h"
#include "tessera/generate.h"
#include "tessera/sampling.h"
#include "tessera/trace.h"

namespace tessera::test {
namespace {

// The steps of one stream.
class Stream {
 public:
  Stream(Context& ctx, const Model& model, const CachePolicy& policy,
         const SamplingOptions& sampling)
      : ctx_(ctx),
        cache_(model.make_cache(ctx, policy, 256, 16)),
        sampler_(sampling),
        runner_((reserved_workspace(ctx, model, cache_, 1), ctx), model, 1) {
    sampler_.reserve(model.config().vocab);
  }

  std::int32_t step(std::int32_t id) {
    Draw draw{.sampler = &sampler_, .drawn = &drawn_};
    const CacheStep& step = cache_.step(ctx_, {&id, 1}, 1);
    if (runner_.can_start({&draw, 1})) {
      runner_.start(step, {&draw, 1});
      runner_.finish({&draw, 1});
    } else {
      runner_.forward(step);
      runner_.draw({&draw, 1});
    }
    return drawn_.front().token.id;
  }

 private:
  Context& ctx_;
  KvCache cache_;
  Sampler sampler_;
  StepRunner runner_;
  std::vector<Sampled> drawn_;
};

class StepAllocationsTest : public DeviceTest {
 protected:
  static void expect_no_allocations(Context& context, const Model& model) {
    const SamplingOptions samplings[] = {
        {.greedy = true},
        {.temperature = 0.8, .top_k = 20, .seed = 3},
        {.top_p = 0.9, .min_p = 0.01, .seed = 3},
        {.top_p = 0.9, .repetition_penalty = 1.1, .presence_penalty = 0.5, .seed = 3}};
    for (const CachePolicy& policy :
         {CachePolicy::full(), CachePolicy::last(40), CachePolicy::sinks(4, 40)}) {
      for (const SamplingOptions& sampling : samplings) {
        SCOPED_TRACE(to_string(policy));
        Stream stream(context, model, policy, sampling);
        // The first steps create what a Context creates once, such as library handles.
        std::int32_t id = 1;
        for (int i = 0; i < 5; ++i) id = stream.step(id);
        const std::int64_t workspace = context.workspace_bytes();
        const AllocationCounter counter;
        for (int i = 0; i < 100; ++i) id = stream.step(id);
        ASSERT_EQ(counter.count(), 0);
        ASSERT_EQ(context.workspace_bytes(), workspace);
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, StepAllocationsTest, testing::ValuesIn(test_devices()),
                         device_name);

TEST_P(StepAllocationsTest, TheCounterCounts) {
  if (!AllocationCounter::works()) GTEST_SKIP() << "a sanitizer has its own operator new";
  const AllocationCounter counter;
  // These are not new expressions, because a compiler may leave those out.
  ::operator delete(::operator new(8));
  ::operator delete[](::operator new[](8));
  ::operator delete (::operator new (64, std::align_val_t{64}), std::align_val_t{64});
  EXPECT_EQ(counter.count(), 3);
}

TEST_P(StepAllocationsTest, AHundredTokensTakeNothingFromTheHeap) {
  if (!AllocationCounter::works()) GTEST_SKIP() << "a sanitizer has its own operator new";
  for (const char* name : {"neox-parallel", "neox-serial", "llama-gqa", "qwen3", "llama-int4",
                           "llama-mxfp4", "llama-int8-channel"}) {
    SCOPED_TRACE(name);
    // Tracing is off, because it keeps a text for each kind of call.
    Context context({.device = GetParam(), .threads = 3});
    expect_no_allocations(context, *load_model(context, data_path("goldens") / name));
  }
}

// All layers in one kernel (decode_layers), in a graph and launched step by step.
TEST_P(StepAllocationsTest, NeitherDoStepsThatAreOneKernel) {
  if (!AllocationCounter::works()) GTEST_SKIP() << "a sanitizer has its own operator new";
  if (GetParam().is_cpu()) GTEST_SKIP() << "the CPU has no kernel for it";
  for (const std::optional<Format> format : {std::optional<Format>(), {Format::nvfp4}}) {
    const auto model = random_neox(ctx(), format);
    KvCache cache = model->make_cache(ctx(), CachePolicy::full(), 256, 16);
    const Buffer logits(DType::f32, {1, model->config().vocab}, GetParam());
    const std::int32_t id = 1;
    ctx().trace().clear();
    forward_ids(ctx(), *model, cache, {&id, 1}, logits.tensor());
    const std::vector<TraceEntry> calls = ctx().trace().entries();
    ASSERT_TRUE(std::any_of(calls.begin(), calls.end(),
                            [](const TraceEntry& call) { return call.op == "decode_layers"; }));
    for (const bool graphs : {true, false}) {
      SCOPED_TRACE(graphs ? "graphs" : "no graphs");
      Context context({.device = GetParam(), .threads = 1, .graphs = graphs});
      expect_no_allocations(context, *model);
    }
  }
}

TEST_P(StepAllocationsTest, AHundredTokensOfGenerateTakeNothingFromTheHeap) {
  if (!AllocationCounter::works()) GTEST_SKIP() << "a sanitizer has its own operator new";
  Context context({.device = GetParam(), .threads = 3});
  const auto model = load_model(context, data_path("goldens") / "llama-gqa");
  for (const CachePolicy& policy : {CachePolicy::full(), CachePolicy::sinks(4, 40)}) {
    SCOPED_TRACE(to_string(policy));
    KvCache cache = model->make_cache(context, policy, 256, 16);
    std::optional<AllocationCounter> counter;
    int tokens = 0;
    const std::int32_t prompt[] = {1};
    generate(context, *model, cache, nullptr, prompt, {.max_tokens = 255, .ignore_eos = true},
             [&](const GeneratedToken&) {
               // Lists that double grow at 128 and at 256.
               if (++tokens == 140) counter.emplace();
               if (tokens == 240) {
                 EXPECT_EQ(counter->count(), 0);
               }
             });
    EXPECT_EQ(tokens, 255);
  }
}

}  // namespace
}  // namespace tessera::test
