#include "parallel/small_models.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "model/checkpoint/random_weights.h"
#include "model/parallel_model.h"
#include "parallel/ranks.h"
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

// What an Engine answers to a few requests.
std::vector<std::vector<std::int32_t>> answers_of(Context& ctx, const Model& model) {
  // Few pages, so that requests are preempted; prompts that begin alike; two answers to one prompt,
  // whose pages are copied when they part.
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

}  // namespace

void expect_answers_of_the_whole(Context& ctx, const ModelConfig& config,
                                 std::unique_ptr<Model> part, int times) {
  if (ranks().rank() != 0) return model::follow(ctx, *part, ranks(), world());
  const auto whole = model::make_random_model(ctx, config);
  const auto expected = answers_of(ctx, *whole);
  const auto leading = model::lead(std::move(part), ranks(), world());
  for (int i = 0; i < times; ++i) EXPECT_EQ(answers_of(ctx, *leading), expected);
  model::end_following(world());
}

}  // namespace tessera::test
