#include "support/small_models.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "model/checkpoint/random_weights.h"
#include "model/parallel_model.h"
#include "tessera/buffer.h"
#include "tessera/engine.h"

namespace tessera::test {

ModelConfig small_config(bool neox, int size) {
  ModelConfig config;
  config.architecture = neox ? "gpt_neox" : "llama";
  config.layers = 2;
  config.heads = 2 * size;
  config.kv_heads = neox ? config.heads : size;
  config.head_dim = 64;
  config.hidden = config.heads * config.head_dim;
  config.intermediate = 128 * (2 * size + 1);  // the last ranks have less
  config.vocab = 331;
  config.max_positions = 128;
  config.parallel_residual = neox;
  config.qkv_bias = config.output_bias = config.mlp_bias = neox;
  config.activation = neox ? Activation::gelu : Activation::silu;
  config.windows.assign(2, 0);
  config.rope = {.dims = neox ? 16 : 64};
  return config;
}

namespace {

// The answers of an Engine to a few requests.
std::vector<std::vector<std::int32_t>> answers_of(Context& ctx, const Model& model) {
  // Few pages, so that requests are preempted; prompts that begin alike; two answers to one prompt,
  // whose pages are copied when the answers diverge.
  Engine engine(
      ctx, model, nullptr,
      {.context = 64, .max_sequences = 3, .max_step_tokens = 16, .pages = 14, .page_size = 8});
  std::vector<RequestHandle> handles;
  for (int i = 0; i < 6; ++i) {
    Request request;
    for (int k = 0; k < 10 + 3 * i; ++k)
      request.prompt_ids.push_back((k < 9 ? k : 31 * k + i) % 331);
    request.n = i % 3 == 1 ? 2 : 1;
    request.options.max_tokens = 9;
    request.options.ignore_eos = true;
    request.options.sampling.temperature = i % 2 == 0 ? 0.f : 1.f;
    request.options.sampling.seed = static_cast<std::uint64_t>(i);
    handles.push_back(engine.submit(request));
  }
  std::vector<std::vector<std::int32_t>> answers;
  for (RequestHandle& handle : handles) {
    for (const GenerateResult& result : handle.wait()) answers.push_back(result.ids);
  }
  return answers;
}

// The answer to a prompt of many pages, in one step: with a spread context, each rank runs some
// rows.
std::vector<std::int32_t> answer_to_a_long_prompt(Context& ctx, const Model& model) {
  Engine engine(ctx, model, nullptr,
                {.context = 128, .max_sequences = 1, .max_step_tokens = 128, .page_size = 8});
  Request request;
  for (int i = 0; i < 109; ++i) request.prompt_ids.push_back((37 * i + i / 11) % 331);
  request.options.max_tokens = 9;
  request.options.ignore_eos = true;
  request.options.sampling.temperature = 0.f;
  return engine.submit(request).wait().front().ids;
}

// Draws that need only the largest logits, and draws that need all: one request after the other, so
// that each has steps of its own.
std::vector<std::vector<std::int32_t>> drawn_answers(Context& ctx, const Model& model) {
  Engine engine(ctx, model, nullptr,
                {.context = 64, .max_sequences = 2, .max_step_tokens = 16, .page_size = 8});
  std::vector<GenerateOptions> all(8);
  all[0].sampling.greedy = true;
  all[1].sampling.top_k = 5;
  all[2].sampling.top_k = 20;
  all[2].sampling.top_p = 0.7F;
  all[3].sampling.top_k = 3;
  all[3].sampling.min_p = 0.1F;
  all[4].sampling.top_p = 0.8F;
  all[5].sampling.greedy = true;
  all[5].sampling.repetition_penalty = 1.5F;
  all[6].sampling.top_k = 4;
  all[6].top_logprobs = 2;
  all[7].sampling.top_k = 5;
  all[7].sampling.logit_bias = {{17, 3.F}};
  std::vector<std::vector<std::int32_t>> answers;
  for (GenerateOptions& options : all) {
    Request request;
    for (int k = 0; k < 21; ++k) request.prompt_ids.push_back(29 * k % 331);
    options.max_tokens = 12;
    options.ignore_eos = true;
    options.sampling.seed = 7;
    request.options = options;
    request.n = 2;
    for (const GenerateResult& result : engine.submit(request).wait()) {
      answers.push_back(result.ids);
    }
  }
  return answers;
}

}  // namespace

void expect_answers_of_the_whole(Context& ctx, Communicator& ranks,
                                 parallel::ControlChannel& channel, const ModelConfig& config,
                                 std::unique_ptr<Model> part, int times) {
  if (ranks.rank() != 0) return model::follow(ctx, *part, ranks, channel);
  const auto whole = model::make_random_model(ctx, config);
  const auto expected = answers_of(ctx, *whole);
  const auto long_answer = answer_to_a_long_prompt(ctx, *whole);
  const auto drawn = drawn_answers(ctx, *whole);
  const auto leading = model::lead(std::move(part), ranks, channel);
  for (int i = 0; i < times; ++i) EXPECT_EQ(answers_of(ctx, *leading), expected);
  EXPECT_EQ(answer_to_a_long_prompt(ctx, *leading), long_answer);
  EXPECT_EQ(drawn_answers(ctx, *leading), drawn);
  model::end_following(channel);
}

namespace {

// The last three rows of logits, after a prompt in these steps.
std::vector<float> logits_after(Context& ctx, const Model& model,
                                std::span<const std::int32_t> prompt,
                                std::span<const std::int64_t> steps) {
  KvCache cache =
      model.make_cache(ctx, CachePolicy::full(), std::ssize(prompt) + 20, std::ssize(prompt));
  const Buffer logits(DType::f32, {3, model.config().vocab}, ctx.device());
  for (const std::int64_t n : steps) {
    const auto ids = prompt.first(static_cast<std::size_t>(n));
    prompt = prompt.subspan(static_cast<std::size_t>(n));
    const CacheStep& step = cache.step(ctx, ids, prompt.empty() ? 3 : 0);
    model.forward(ctx, {.step = &step, .logits = prompt.empty() ? logits.tensor() : Tensor()});
  }
  std::vector<float> values(static_cast<std::size_t>(logits.tensor().numel()));
  copy_bytes(ctx, values.data(), Device::cpu(), logits.data(), logits.device(), logits.bytes());
  ctx.synchronize();
  return values;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double{a[i]} - double{b[i]});
    if (!(difference <= largest)) largest = difference;  // NaN shows
  }
  return largest;
}

}  // namespace

void expect_long_prompts_of_the_whole(Context& ctx, Communicator& ranks, const ModelConfig& config,
                                      DType dtype) {
  const auto exact = model::make_random_model(ctx, config, {.dtype = DType::f32});
  const auto whole = model::make_random_model(ctx, config, {.dtype = dtype});
  const auto part =
      model::make_random_model(ctx, config, {.dtype = dtype, .context_parallel = &ranks});
  std::vector<std::int32_t> prompt;
  for (int i = 0; i < 700; ++i) prompt.push_back((37 * i + i / 11) % 331);
  // In one step; in two, of which the second meets a cache; and one that ends within a page.
  for (const std::vector<std::int64_t>& steps :
       {std::vector<std::int64_t>{700}, {520, 180}, {1, 699}}) {
    SCOPED_TRACE(steps.front());
    const std::vector<float> actual = logits_after(ctx, *part, prompt, steps);
    if (ranks.rank() != 0) continue;  // rank 0 alone has the logits
    const std::vector<float> expected = logits_after(ctx, *whole, prompt, steps);
    if (dtype == DType::f32) {
      EXPECT_LT(largest_difference(actual, expected), 1e-4);
      continue;
    }
    // With 16 bits: about as far from f32 as the whole model is.
    const std::vector<float> in_f32 = logits_after(ctx, *exact, prompt, steps);
    EXPECT_LT(largest_difference(actual, in_f32), 2 * largest_difference(expected, in_f32));
  }
}

}  // namespace tessera::test
