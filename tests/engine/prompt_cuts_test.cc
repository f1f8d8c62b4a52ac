// On the CPU, the bits of a request do not depend on where its prompt is cut into chunks: neither
// by a small step, nor by other streams, nor by a prefix that was found. So a text is the same
// alone and in company, with 8-bit activations too, where a last bit may change a token.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "support/files.h"
#include "support/logprobs.h"
#include "support/sanitizers.h"
#include "tessera/engine.h"

namespace tessera::test {
namespace {

constexpr std::int64_t kCutContext = 128;

struct CutCase {
  const char* model;
  std::optional<Format> format{};
  Activations activations = Activations::exact;
  std::optional<DType> cache_dtype{};
};

std::string describe(const CutCase& c) {
  return std::string(c.model) + " " + std::string(c.format ? name(*c.format) : "as it is") +
         (c.activations == Activations::int8 ? " int8" : "") +
         (c.cache_dtype ? " cache " + std::string(name(*c.cache_dtype)) : "");
}

Request request_to_cut(std::mt19937& random, std::int64_t vocab, std::int64_t prompt_tokens,
                       std::int64_t answer) {
  Request request;
  for (std::int64_t i = 0; i < prompt_tokens; ++i) {
    request.prompt_ids.push_back(
        static_cast<std::int32_t>(static_cast<std::int64_t>(random()) % vocab));
  }
  request.options = {.max_tokens = answer, .ignore_eos = true};
  request.options.sampling.seed = random() % 100;
  request.options.top_logprobs = 2;
  return request;
}

std::vector<CutCase> cases_of_cuts() {
  return {{"neox-parallel"},
          {"qwen3"},
          {"qwen3", {}, Activations::exact, DType::f16},
          {"llama-gqa", Format::fp8},
          {"neox-parallel", Format::int4, Activations::int8, DType::f16},
          {"qwen3", Format::nvfp4, Activations::int8, DType::f16},
          {"llama-gqa", Format::int8, Activations::int8, DType::i8},
          {"neox-serial-untied", Format::nf4, Activations::exact}};
}

void expect_same_answers(const std::vector<GenerateResult>& found,
                         const std::vector<GenerateResult>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].ids, expected[i].ids);
    expect_same(found[i].sampled, expected[i].sampled);
  }
}

std::unique_ptr<Model> load_to_cut(Context& ctx, const CutCase& c) {
  LoadOptions options{.dtype = DType::f32};
  if (c.format) options.pack = QuantizeOptions{.format = *c.format};
  return load_model(ctx, data_path("goldens") / c.model, options);
}

// check(case, context, model)
template <typename Check>
void for_each_case(const Check& check) {
  Thinned thinned(3);
  for (const CutCase& c : cases_of_cuts()) {
    if (!thinned.takes_next()) continue;
    SCOPED_TRACE(describe(c));
    Context ctx({.threads = 2, .activations = c.activations});
    check(c, ctx, *load_to_cut(ctx, c));
  }
}

TEST(PromptCuts, ChunksAndPrefixesOfAnySizeGiveTheSameBits) {
  for_each_case([](const CutCase& c, Context& ctx, const Model& model) {
    std::mt19937 random(5);
    for (const std::int64_t prompt : {1, 2, 17, 33, 70}) {
      SCOPED_TRACE(prompt);
      Request request = request_to_cut(random, model.config().vocab, prompt, 6);
      request.n = 2;
      std::vector<GenerateResult> whole;
      for (const std::int64_t cut : {128, 2, 3, 7, 16, 17, 19, 32, 69}) {
        SCOPED_TRACE(cut);
        Engine engine(ctx, model, nullptr,
                      {.context = kCutContext,
                       .max_sequences = 2,
                       .max_step_tokens = cut,
                       .page_size = 16,
                       .cache_dtype = c.cache_dtype});
        const std::vector<GenerateResult> cold = engine.submit(request).wait();
        if (whole.empty()) whole = cold;
        expect_same_answers(cold, whole);
        expect_same_answers(engine.submit(request).wait(), whole);
        if (prompt > 16) {
          EXPECT_GT(engine.stats().cached_tokens, 0);
        }
      }
      KvCache cache = model.make_cache(ctx, {}, kCutContext, 5, 1, c.cache_dtype);
      GenerateResult alone =
          generate(ctx, model, cache, nullptr, request.prompt_ids, request.options);
      EXPECT_EQ(alone.ids, whole[0].ids);
      expect_same(alone.sampled, whole[0].sampled);
    }
  });
}

// Streams decide how many tokens of a prompt a step takes, and so does the time that steps take.
TEST(PromptCuts, ATextIsTheSameInTheBusiestCompany) {
  for_each_case([](const CutCase& c, Context& ctx, const Model& model) {
    std::mt19937 random(9);
    std::vector<Request> requests;
    for (int i = 0; i < (kSanitized ? 30 : 125); ++i) {
      requests.push_back(request_to_cut(random, model.config().vocab,
                                        1 + static_cast<std::int64_t>(random() % 90),
                                        1 + static_cast<std::int64_t>(random() % 30)));
    }
    std::vector<std::vector<GenerateResult>> together;
    {
      Engine engine(ctx, model, nullptr,
                    {.context = kCutContext,
                     .max_sequences = 32,
                     .max_step_tokens = 64,
                     .page_size = 16,
                     .cache_dtype = c.cache_dtype});
      std::vector<RequestHandle> handles;
      for (const Request& request : requests) handles.push_back(engine.submit(request));
      for (RequestHandle& handle : handles) together.push_back(handle.wait());
      EXPECT_EQ(engine.stats().preemptions, 0);
    }
    for (std::size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(i);
      KvCache cache = model.make_cache(ctx, {}, kCutContext, 128, 1, c.cache_dtype);
      expect_same_answers(together[i], {generate(ctx, model, cache, nullptr, requests[i].prompt_ids,
                                                 requests[i].options)});
    }
  });
}

}  // namespace
}  // namespace tessera::test
