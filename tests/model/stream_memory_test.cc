// The workspace of a stream is sized once, before its first step. Nothing that comes later makes it
// grow, and it holds little more than is used.
#include "model/stream_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/workspace.h"
#include "engine/forward_ids.h"
#include "support/devices.h"
#include "support/files.h"
#include "tessera/generate.h"
#include "tessera/perplexity.h"

namespace tessera::test {
namespace {

std::vector<std::string> goldens() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(data_path("goldens"))) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Runs steps of every kind: long ones, odd ones, single tokens, with and without logits. It ends
// when a cache of `length` tokens is full or has rolled for a while.
void run_stream(Context& ctx, const Model& model, KvCache& cache, std::int64_t length,
                std::int64_t logit_rows) {
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(cache.options().max_step), 1);
  Workspace::Frame frame(ctx.workspace());
  const Tensor logits = frame.take(DType::f32, {logit_rows, model.config().vocab});
  const std::int64_t sizes[] = {37, 1, cache.options().max_step, 5, 36, 8, 12, 64, 2, 17};
  for (std::size_t i = 0; cache.seen() < length; ++i) {
    const std::int64_t left = length - cache.seen();
    const std::int64_t n = cache.step_size(std::min(sizes[i % std::size(sizes)], left));
    const std::int64_t rows = i % 3 == 0 ? 0 : i % 3 == 1 ? 1 : std::min(logit_rows, n);
    forward_ids(ctx, model, cache, std::span(tokens).first(static_cast<std::size_t>(n)),
                rows > 0 ? logits.slice(0, 0, rows) : Tensor{});
  }
}

struct Variant {
  std::string name;
  LoadOptions load;
  Activations activations = Activations::exact;
};

std::vector<Variant> variants() {
  const auto packed = [](Format format) {
    return QuantizeOptions{.format = format, .group = format == Format::int4 ? 32 : -1};
  };
  return {{"f32", {.dtype = DType::f32}},
          {"f16", {.dtype = DType::f16}},
          {"bf16", {.dtype = DType::bf16}},
          {"nvfp4", {.dtype = DType::f32, .pack = packed(Format::nvfp4)}},
          {"int4 by int8", {.dtype = DType::bf16, .pack = packed(Format::int4)}, Activations::int8},
          {"fp8", {.dtype = DType::f16, .pack = packed(Format::fp8)}}};
}

class StreamMemory : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    const std::string why = why_unusable(GetParam());
    if (!why.empty()) GTEST_SKIP() << why;
  }
  // On a GPU, cuBLASLt may ask for up to 32 MiB. It does not for matrices as small as these.
  static std::int64_t library_scratch() { return GetParam().is_cpu() ? 0 : 33 << 20; }
  std::unique_ptr<Context> context(Activations activations = Activations::exact,
                                   int threads = 2) const {
    return std::make_unique<Context>(
        ContextOptions{.device = GetParam(), .threads = threads, .activations = activations});
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, StreamMemory, testing::ValuesIn(test_devices()), device_name);

TEST_P(StreamMemory, IsSizedOnceForEveryArchitectureAndDtype) {
  constexpr std::int64_t kStep = 96;  // more than the few rows that have their own kernels
  for (const std::string& name : goldens()) {
    for (const Variant& variant : variants()) {
      SCOPED_TRACE(name + ", " + variant.name);
      const std::unique_ptr<Context> ctx = context(variant.activations);
      const auto model = load_model(*ctx, data_path("goldens") / name, variant.load);
      KvCache cache = model->make_cache(*ctx, CachePolicy::full(), 300, kStep, 3);
      const std::int64_t reserved = ctx->workspace_bytes();
      ctx->workspace().reset_peak();
      run_stream(*ctx, *model, cache, 300, 3);
      EXPECT_EQ(ctx->workspace_bytes(), reserved);
      EXPECT_LE(reserved, 2 * ctx->workspace_peak_bytes() + library_scratch());
    }
  }
}

TEST_P(StreamMemory, IsSizedOnceForStreamsThatRoll) {
  for (const char* name : {"llama-gqa", "neox-parallel", "qwen3"}) {
    for (const CachePolicy& policy :
         {CachePolicy::sinks(4, 280), CachePolicy::last(200), CachePolicy::sinks(3, 20)}) {
      for (const std::int64_t max_step : {1, 48}) {
        SCOPED_TRACE(std::string(name) + ", " + to_string(policy));
        const std::unique_ptr<Context> ctx = context(Activations::exact, 5);
        const auto model = load_model(*ctx, data_path("goldens") / name);
        KvCache cache = model->make_cache(*ctx, policy, 0, max_step);
        const std::int64_t reserved = ctx->workspace_bytes();
        ctx->workspace().reset_peak();
        // generate() reads a prompt like this, however few tokens a step has.
        const std::int32_t id = 1;
        const CacheBatch::Part prompt{&cache.sequence(), {&id, 1}, 0, /*is_prompt=*/true};
        model->forward(*ctx, {.step = &cache.batch().step(*ctx, {&prompt, 1})});
        run_stream(*ctx, *model, cache, max_step == 1 ? 320 : 900, 1);
        EXPECT_EQ(ctx->workspace_bytes(), reserved);
        EXPECT_LE(reserved, 2 * ctx->workspace_peak_bytes() + library_scratch());
      }
    }
  }
}

TEST_P(StreamMemory, GenerationAndPerplexityStayWithinIt) {
  const std::unique_ptr<Context> ctx = context();
  const auto model = load_model(*ctx, data_path("goldens/llama-gqa"));
  KvCache cache = model->make_cache(*ctx, CachePolicy::sinks(4, 60), 0, 32);
  const std::int64_t reserved = ctx->workspace_bytes();
  const std::vector<std::int32_t> prompt(100, 2);
  generate(*ctx, *model, cache, nullptr, prompt, {.max_tokens = 20, .ignore_eos = true});
  EXPECT_EQ(ctx->workspace_bytes(), reserved);

  // Perplexity asks for the logits of every token of a step. Its own workspace is larger, and is
  // sized once too.
  const std::vector<std::int32_t> text(400, 3);
  std::vector<std::int64_t> held;
  const auto remember = [&](std::int64_t, std::int64_t) { held.push_back(ctx->workspace_bytes()); };
  perplexity(*ctx, *model, text, {.context = 300, .progress = remember});
  ASSERT_GE(held.size(), 2u);
  EXPECT_EQ(held.front(), held.back());
  held.clear();
  cache.clear();
  stream_perplexity(*ctx, *model, cache, text, {.progress = remember});
  ASSERT_GE(held.size(), 2u);
  EXPECT_EQ(held.front(), held.back());
}

TEST_P(StreamMemory, KeysAreF16WhereTheCpuRoundsActivationsTo8Bits) {
  const QuantizeOptions int4{.format = Format::int4, .group = 32};
  const struct {
    LoadOptions load;
    Activations activations;
    DType cpu, gpu;
  } cases[] = {
      {{.dtype = DType::f32, .pack = int4}, Activations::int8, DType::f16, DType::f32},
      {{.dtype = DType::f32, .pack = int4}, Activations::exact, DType::f32, DType::f32},
      {{.dtype = DType::f32}, Activations::int8, DType::f32, DType::f32},
      {{.dtype = DType::bf16, .pack = int4}, Activations::int8, DType::bf16, DType::bf16},
  };
  for (const auto& [load, activations, cpu, gpu] : cases) {
    const std::unique_ptr<Context> ctx = context(activations);
    const auto model = load_model(*ctx, data_path("goldens/llama-gqa"), load);
    const DType expected = GetParam().is_cpu() ? cpu : gpu;
    EXPECT_EQ(model->cache_dtype(*ctx), expected);
    EXPECT_EQ(model->make_cache(*ctx, CachePolicy::full(), 64).keys(0).dtype, expected);
    const PoolRequest request{
        .limits = {.max_tokens = 8, .max_sequences = 1, .max_pages_of_a_sequence = 2}, .pages = 2};
    EXPECT_EQ(model->make_pool(*ctx, request)->options().dtype, expected);
    // What is chosen counts.
    KvCache chosen = model->make_cache(*ctx, CachePolicy::full(), 64, 16, 1, model->dtype());
    EXPECT_EQ(chosen.keys(0).dtype, model->dtype());
  }
}

TEST_P(StreamMemory, CountingRunsNothingAndLeavesNoTrace) {
  const std::unique_ptr<Context> ctx = context();
  const auto model = load_model(*ctx, data_path("goldens/qwen3"));
  ctx->trace().enable(true);
  const std::int64_t held = ctx->workspace_bytes(), peak = ctx->workspace_peak_bytes();
  const ModelConfig& config = model->config();
  // No machine has room for this cache. It is only counted.
  const KvCacheOptions huge{.layers = config.layers,
                            .kv_heads = config.kv_heads,
                            .head_dim = config.head_dim,
                            .dtype = model->dtype(),
                            .max_tokens = std::int64_t{1} << 30};
  EXPECT_GT(kv_cache_bytes(huge), std::int64_t{1} << 38);
  EXPECT_GT(model->workspace_bytes(*ctx, huge, 1), 1 << 16);
  EXPECT_EQ(ctx->workspace_bytes(), held);
  EXPECT_EQ(ctx->workspace_peak_bytes(), peak);
  EXPECT_TRUE(ctx->trace().entries().empty());
}

}  // namespace
}  // namespace tessera::test
