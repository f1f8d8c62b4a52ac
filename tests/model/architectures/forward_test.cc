// A forward pass: which rows it returns, cache policies, dtypes, which ops it calls, and what it
// refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reference/modules.h"
#include "reference/parity.h"
#include "reference/test_tensor.h"
#include "support/compare.h"
#include "support/files.h"
#include "support/refusal.h"
#include "tessera/model.h"

namespace tessera::test {
namespace {

using reference::compare;

std::filesystem::path golden_path(const std::string& name) { return data_path("goldens/" + name); }

// A model with a stream through it.
class Stream {
 public:
  explicit Stream(const std::string& name, const LoadOptions& options = {}, bool trace = false)
      : ctx({.threads = 2, .trace = trace}),
        golden(reference::read_golden(golden_path(name) / "golden.safetensors")),
        model(load_model(ctx, golden_path(name), options)) {}

  // Feeds the prompt's tokens from `begin` to `end` and returns the logits of the last `rows` of
  // them. With no rows, there are no logits.
  Array run(KvCache& cache, std::size_t begin, std::size_t end, std::int64_t rows) {
    return run(cache, std::span(golden.prompts[0]).subspan(begin, end - begin), rows);
  }
  Array run(KvCache& cache, std::span<const std::int32_t> ids, std::int64_t rows) {
    const CacheStep& step = cache.step(ctx, ids, rows);
    if (rows == 0) {
      model->forward(ctx, {.step = &step});
      return {};
    }
    const TestTensor logits = TestTensor::poisoned(ctx, {rows, model->config().vocab}, DType::f32);
    model->forward(ctx, {.step = &step, .logits = logits});
    EXPECT_TRUE(logits.surroundings_intact());
    return logits.read();
  }
  KvCache cache(const CachePolicy& policy = CachePolicy::full(),
                std::optional<DType> dtype = std::nullopt) {
    return model->make_cache(ctx, policy, 256, 64, 1, dtype);
  }

  Context ctx;
  reference::Golden golden;
  std::unique_ptr<Model> model;
};

Array last_rows(const Array& array, std::int64_t rows) {
  Array last({rows, array.size(1)});
  std::copy(array.data.end() - last.numel(), array.data.end(), last.data.begin());
  return last;
}

TEST(Forward, OnlyTheRowsThatAreAskedForAreComputed) {
  for (const char* name :
       {"neox-parallel", "neox-serial", "llama-gqa", "qwen3", "mistral-window"}) {
    SCOPED_TRACE(name);
    Stream stream(name);
    const Array expected = reference::entry(stream.golden.logits, 0);
    const auto tokens = static_cast<std::size_t>(expected.size(0));
    for (std::int64_t rows : {1, 3}) {
      KvCache cache = stream.cache();
      EXPECT_LT(compare(stream.run(cache, 0, tokens, rows), last_rows(expected, rows)).max_rel,
                1e-4);
    }
  }
}

// A step without logits leaves keys and values behind, and nothing else.
TEST(Forward, AStepWithoutLogitsFillsTheCache) {
  for (const char* name : {"neox-parallel", "llama-gqa"}) {
    SCOPED_TRACE(name);
    Stream stream(name);
    const Array expected = reference::entry(stream.golden.logits, 0);
    const auto tokens = static_cast<std::size_t>(expected.size(0));
    KvCache cache = stream.cache();
    stream.run(cache, 0, 9, 0);
    stream.run(cache, 9, tokens - 1, 0);
    EXPECT_LT(compare(stream.run(cache, tokens - 1, tokens, 1), last_rows(expected, 1)).max_rel,
              1e-4);
  }
}

// The cache drops only what the layers' own window hides anyway, so nothing changes.
TEST(Forward, AWindowCacheServesASlidingWindowModel) {
  Stream stream("mistral-window");
  const Array expected = reference::entry(stream.golden.logits, 0);
  KvCache cache = stream.cache(CachePolicy::last(8));
  const std::size_t tokens = stream.golden.prompts[0].size();
  for (std::size_t done = 0; done < tokens;) {
    const auto wanted = static_cast<std::int64_t>(std::min<std::size_t>(5, tokens - done));
    const auto size = static_cast<std::size_t>(cache.step_size(wanted));
    const Array logits = stream.run(cache, done, done + size, static_cast<std::int64_t>(size));
    Array part({static_cast<std::int64_t>(size), expected.size(1)});
    std::copy_n(expected.data.begin() + static_cast<std::ptrdiff_t>(done) * expected.size(1),
                part.numel(), part.data.begin());
    EXPECT_LT(compare(logits, part).max_rel, 1e-4) << done;
    done += size;
  }
}

TEST(Forward, SinksAreTheFullCacheWhileTheStreamFits) {
  for (const char* name : {"neox-parallel", "llama-gqa", "qwen3"}) {
    SCOPED_TRACE(name);
    Stream stream(name);
    const std::size_t tokens = stream.golden.prompts[0].size();
    KvCache full = stream.cache(), sinks = stream.cache(CachePolicy::sinks(4, 60));
    const Array expected = stream.run(full, 0, tokens, 1);
    stream.run(sinks, 0, 7, 0);
    EXPECT_LT(compare(stream.run(sinks, 7, tokens, 1), expected).max_rel, 1e-5);
  }
}

// Once the cache rolls, tokens fed together see what they would have seen one by one.
TEST(Forward, RollingSinksDoNotDependOnTheStep) {
  for (const char* name : {"neox-parallel", "llama-gqa"}) {
    SCOPED_TRACE(name);
    Stream stream(name);
    const auto run = [&](std::int64_t step) {
      KvCache cache = stream.cache(CachePolicy::sinks(2, 9));
      Array all({0, stream.model->config().vocab});
      for (std::int64_t done = 0; done < 90;) {
        const std::int64_t size = cache.step_size(std::min<std::int64_t>(step, 90 - done));
        std::vector<std::int32_t> ids;
        for (std::int64_t i = 0; i < size; ++i) {
          ids.push_back(static_cast<std::int32_t>((done + i) * 37 % stream.model->config().vocab));
        }
        const Array logits = stream.run(cache, ids, size);
        all.data.insert(all.data.end(), logits.data.begin(), logits.data.end());
        done += size;
      }
      all.shape[0] = 90;
      return all;
    };
    EXPECT_LT(compare(run(7), run(1)).max_rel, 1e-5);
  }
}

TEST(Forward, CallsTheFusedOps) {
  Stream neox("neox-parallel", {}, /*trace=*/true), llama("llama-gqa", {}, /*trace=*/true);
  for (Stream* stream : {&neox, &llama}) {
    KvCache cache = stream->cache();
    stream->ctx.trace().clear();
    stream->run(cache, 0, 1, 1);
  }
  const Trace &a = neox.ctx.trace(), &b = llama.ctx.trace();
  EXPECT_EQ(a.calls("layer_norm"), 2 * 3 + 1);
  EXPECT_EQ(a.calls("linear"), 4 * 3 + 1);
  EXPECT_EQ(b.calls("rms_norm"), 2 * 3 + 1);
  EXPECT_EQ(b.calls("linear"), 5 * 3 + 1);
  EXPECT_EQ(b.calls("gated_linear"), 3);
  for (const Trace* trace : {&a, &b}) {
    EXPECT_EQ(trace->calls("embedding"), 1);
    EXPECT_EQ(trace->calls("append_attention"), 3);
  }
}

TEST(Forward, DoesNotAllocateOnceWarm) {
  for (const char* name : {"neox-parallel", "llama-gqa"}) {
    Stream stream(name);
    KvCache cache = stream.cache();
    for (std::size_t i = 0; i < 3; ++i) stream.run(cache, i, i + 1, 1);
    const std::int64_t held = stream.ctx.workspace_bytes();
    for (std::size_t i = 3; i < 12; ++i) stream.run(cache, i, i + 1, 1);
    EXPECT_EQ(stream.ctx.workspace_bytes(), held);
  }
}

// ---- refusals -----------------------------------------------------------------------------------

TEST(Forward, RefusesWhatDoesNotFit) {
  Stream stream("llama-gqa");
  KvCache cache = stream.cache();
  const std::vector<std::int32_t> ids{1, 2, 3};
  const TestTensor logits = TestTensor::poisoned(stream.ctx, {3, 320}, DType::f32);
  const TestTensor narrow = TestTensor::poisoned(stream.ctx, {2, 319}, DType::f32);
  const CacheStep none{};
  const ForwardArgs good{.step = &cache.step(stream.ctx, ids, 2)};
  const std::vector<Refusal<ForwardArgs>> refusals = {
      {[](ForwardArgs& a) { a.step = nullptr; }, "forward: a step of a cache must be given"},
      {[&](ForwardArgs& a) { a.step = &none; }, "forward: a step of a cache must be given"},
      {[&](ForwardArgs& a) { a.logits = logits; },
       "forward: logits must be f32 [2, 320], the rows that the step asks for, got f32[3, 320]"},
      {[&](ForwardArgs& a) { a.logits = narrow; },
       "forward: logits must be f32 [2, 320], the rows that the step asks for, got f32[2, 319]"},
  };
  for (const auto& refusal : refusals) {
    ForwardArgs args = good;
    refusal.spoil(args);
    EXPECT_TRUE(refuses([&] { stream.model->forward(stream.ctx, args); }, refusal.text));
  }
  const CacheStep& without = cache.step(stream.ctx, ids, 0);
  EXPECT_TRUE(
      refuses([&] { stream.model->forward(stream.ctx, {.step = &without, .logits = logits}); },
              "forward: logits were given, but the step asks for none"));
  Stream other("qwen3");
  KvCache foreign = other.cache();
  const CacheStep& step = foreign.step(other.ctx, ids);
  EXPECT_TRUE(refuses([&] { stream.model->forward(stream.ctx, {.step = &step}); },
                      "forward: the cache is f32[2 layers, 2 heads, 16], but the model needs f32[3 "
                      "layers, 2 heads, 8]; make it with make_cache() or make_pool()"));
}

TEST(Forward, RefusesIdsBeyondTheVocabulary) {
  Stream stream("llama-gqa");
  KvCache cache = stream.cache();
  const std::vector<std::int32_t> ids{1, 320};
  EXPECT_THROW(stream.run(cache, ids, 1), Error);
}

// The roundings of keys and values show in the logits, and stay small.
TEST(MakeCache, KeepsF32KeysInHalfTheMemoryOrAQuarter) {
  for (const char* model : {"neox-parallel", "llama-gqa"}) {
    Stream stream(model, {.dtype = DType::f32});
    for (const CachePolicy& policy : {CachePolicy::full(), CachePolicy::sinks(2, 9)}) {
      const auto logits = [&](DType dtype) {
        KvCache cache = stream.cache(policy, dtype);
        EXPECT_EQ(cache.step(stream.ctx, std::vector<std::int32_t>{1}).pool->options().dtype,
                  dtype);
        cache.clear();
        stream.run(cache, 0, 5, 0);
        return stream.run(cache, 5, 10, 1);
      };
      const Array exact = logits(DType::f32);
      for (DType dtype : {DType::f16, DType::bf16}) {
        const Array rounded = logits(dtype);
        EXPECT_FALSE(identical(rounded, exact));
        EXPECT_TRUE(close(rounded, exact, 0, 8 * epsilon(dtype)));
      }
      // int8 is off by up to 2^-8 of the largest element of a row, fp8 by 2^-4 of each.
      EXPECT_TRUE(close(logits(DType::i8), exact, 0, 8 * 0x1p-6));
      EXPECT_TRUE(close(logits(DType::f8e4m3), exact, 0, 8 * 0x1p-4));
      EXPECT_FALSE(identical(logits(DType::i8), exact));
    }
  }
}

TEST(MakeCache, RefusesADtypeThatDoesNotFitTheModel) {
  Stream stream("llama-gqa", {.dtype = DType::bf16});
  EXPECT_TRUE(refuses([&] { stream.cache(CachePolicy::full(), DType::f16); },
                      "a cache of f16 does not fit a model of bf16; choose bf16, f8e4m3 or i8"));
  EXPECT_NO_THROW(stream.cache(CachePolicy::full(), DType::bf16));
  Stream wide("llama-gqa", {.dtype = DType::f32});
  EXPECT_TRUE(
      refuses([&] { wide.cache(CachePolicy::full(), DType::i32); },
              "a cache of i32 does not fit a model of f32; choose f32, f16, bf16, f8e4m3 or i8"));
}

TEST(MakeCache, RefusesSinksThatALayersWindowWouldHide) {
  Stream stream("qwen2-window");
  EXPECT_TRUE(refuses([&] { stream.cache(CachePolicy::sinks(4, 5)); },
                      "sinks(4, 5) keeps 9 tokens, but layers of this model see only the last 8: "
                      "choose sinks and a window of at most 8 tokens together",
                      ErrorCode::unsupported));
  EXPECT_NO_THROW(stream.cache(CachePolicy::sinks(3, 5)));
}

}  // namespace
}  // namespace tessera::test
