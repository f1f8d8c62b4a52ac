// Every golden checkpoint and the bundled model in the engine: tokens of prompts that were cut into
// chunks, found again, forked and preempted are those that transformers generates, or those of
// generate() where they are drawn. Their log-probabilities agree with generate()'s within 1e-4.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include "model/checkpoint/mapped_file.h"
#include "model/checkpoint/safetensors.h"
#include "support/files.h"
#include "support/logprobs.h"
#include "support/sanitizers.h"
#include "tessera/engine.h"

namespace tessera::test {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

constexpr std::int64_t kGoldenContext = 80;
constexpr std::int64_t kGoldenTop = 5;  // log-probabilities beside each token's own
constexpr float kGoldenTolerance = 1e-4F;

struct GoldenText {
  fs::path model;
  Ids prompt, greedy;  // what transformers writes after the prompt
};

Ids first_ids(const model::SafetensorsHeader& header, std::string_view name) {
  const auto stored =
      std::find_if(header.tensors.begin(), header.tensors.end(),
                   [&](const model::StoredTensor& tensor) { return tensor.name == name; });
  const Tensor row = stored->tensor().select(0, 0);
  const std::int64_t* ids = row.ptr<const std::int64_t>();
  return Ids(ids, ids + row.numel());
}

GoldenText read_golden(const fs::path& model, const fs::path& file) {
  const model::MappedFile mapped(file);
  const auto header = model::parse_safetensors(mapped.bytes(), file.string());
  return {model, first_ids(header, "input_ids"), first_ids(header, "generated_ids")};
}

std::vector<GoldenText> golden_texts() {
  std::vector<GoldenText> texts;
  for (const auto& entry : fs::directory_iterator(data_path("goldens"))) {
    if (!entry.is_directory()) continue;
    texts.push_back(read_golden(entry.path(), entry.path() / "golden.safetensors"));
  }
  std::sort(texts.begin(), texts.end(),
            [](const GoldenText& a, const GoldenText& b) { return a.model < b.model; });
  texts.push_back(
      read_golden(data_path("../../models/stories"), data_path("stories") / "golden.safetensors"));
  return texts;
}

Request request_for(const GoldenText& golden, const SamplingOptions& sampling, std::int64_t n = 1) {
  Request request;
  request.prompt_ids = golden.prompt;
  request.options = {.max_tokens = std::ssize(golden.greedy),
                     .ignore_eos = true,
                     .sampling = sampling,
                     .top_logprobs = kGoldenTop};
  request.n = n;
  return request;
}

GenerateResult generated(Context& ctx, const Model& model, const Request& request) {
  KvCache cache = model.make_cache(ctx, CachePolicy::full(), kGoldenContext);
  return generate(ctx, model, cache, nullptr, request.prompt_ids, request.options);
}

// Four sequences in a pool that holds one of them and a part of a second.
TEST(GoldenEngine, TokensSurviveChunksPrefixesForksAndPreemption) {
  Thinned thinned(5);
  for (const GoldenText& golden : golden_texts()) {
    if (!thinned.takes_next()) continue;
    SCOPED_TRACE(golden.model.filename());
    Context ctx({.threads = 2});
    const auto model = load_model(ctx, golden.model, {.dtype = DType::f32});
    const SamplingOptions greedy{.greedy = true}, drawn{.temperature = 0.9, .seed = 3};
    const GenerateResult plain = generated(ctx, *model, request_for(golden, greedy));
    const GenerateResult plain_drawn = generated(ctx, *model, request_for(golden, drawn));
    EXPECT_EQ(plain.ids, golden.greedy);
    const std::int64_t length = std::ssize(golden.prompt) + std::ssize(golden.greedy);
    Engine engine(ctx, *model, nullptr,
                  {.context = kGoldenContext,
                   .max_sequences = 4,
                   .max_step_tokens = 9,
                   .pages = length / 4 + 3,
                   .page_size = 4});
    // The first token waits until all requests are there, so that they run at the same time.
    std::promise<void> all_are_there;
    Request first = request_for(golden, greedy);
    std::vector<Sampled> first_tokens;
    first.on_event = [&, wait = all_are_there.get_future().share()](const Event& event) {
      wait.wait();
      if (event.kind == Event::Kind::token) first_tokens.push_back(event.token.sampled);
    };
    engine.submit(first);
    RequestHandle forks = engine.submit(request_for(golden, greedy, 3));
    RequestHandle other = engine.submit(request_for(golden, drawn));
    all_are_there.set_value();
    for (const GenerateResult& choice : forks.wait()) {
      expect_near(choice.sampled, plain.sampled, kGoldenTolerance);
    }
    expect_near(other.wait()[0].sampled, plain_drawn.sampled, kGoldenTolerance);
    RequestHandle again = engine.submit(request_for(golden, greedy));
    expect_near(again.wait()[0].sampled, plain.sampled, kGoldenTolerance);
    expect_near(first_tokens, plain.sampled, kGoldenTolerance);
    EXPECT_GT(engine.stats().preemptions, 0);
    EXPECT_GT(engine.stats().cached_tokens, 0);
  }
}

}  // namespace
}  // namespace tessera::test
