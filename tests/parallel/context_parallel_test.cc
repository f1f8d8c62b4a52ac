// A context that is spread over the ranks: goldens and longer prompts have the logits and the
// tokens of one process, whatever the steps; each rank keeps its share of the pages.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/checkpoint/random_weights.h"
#include "parallel/ranks.h"
#include "reference/parity.h"
#include "support/files.h"
#include "support/small_models.h"
#include "tessera/error.h"
#include "tessera/model.h"

namespace tessera::test {
namespace {

constexpr double kContextBound = 1e-4;

TEST(ContextParallel, GoldensHaveTheLogitsAndTokensOfOneProcess) {
  Context ctx({.threads = 1});
  for (const char* name : {"llama-gqa", "mistral-window", "qwen2-window", "neox-parallel"}) {
    SCOPED_TRACE(name);
    const std::filesystem::path folder = data_path("goldens") / name;
    const auto golden = reference::read_golden(folder / "golden.safetensors");
    const auto whole = load_model(ctx, folder, {.dtype = DType::f32});
    const auto part = load_model(ctx, folder, {.dtype = DType::f32, .context_parallel = &ranks()});
    const std::vector<std::int64_t> steps{1, 5, 1000};
    const auto expected = reference::observe(ctx, *whole, golden.prompts[0], steps);
    const auto actual = reference::observe(ctx, *part, golden.prompts[0], steps);
    EXPECT_LT(reference::compare(actual.logits, expected.logits).max_abs, kContextBound);
    const auto count = static_cast<std::int64_t>(golden.generated.size());
    EXPECT_EQ(reference::generate_greedy(ctx, *part, golden.prompts[0], count).ids,
              golden.generated);
  }
}

TEST(ContextParallel, LongPromptsAreSpread) {
  Context ctx({.threads = 1});
  for (const bool neox : {true, false}) {
    expect_long_prompts_of_the_whole(ctx, ranks(), small_config(neox, 1));
  }
  ModelConfig windowed = small_config(false, 1);
  windowed.windows = {100, 0};  // one layer with a window, one without
  expect_long_prompts_of_the_whole(ctx, ranks(), windowed);
}

TEST(ContextParallel, EachRankKeepsItsShareOfThePages) {
  Context ctx({.threads = 1});
  const ModelConfig config = small_config(true, 1);
  const auto whole = model::make_random_model(ctx, config);
  const auto part = model::make_random_model(ctx, config, {.context_parallel = &ranks()});
  const std::int64_t tokens = 64 * 240;
  const auto bytes = [&](const Model& model) {
    return static_cast<double>(model.make_cache(ctx, CachePolicy::full(), tokens).bytes());
  };
  EXPECT_LT(bytes(*part) / bytes(*whole) * ranks().size(), 1.1);
  EXPECT_EQ(ranks().size() == 1, bytes(*part) == bytes(*whole));
  if (ranks().size() == 1) return;
  EXPECT_THROW(part->make_cache(ctx, CachePolicy::sinks(4, 60), 0), Error);
}

TEST(ContextParallel, AnEngineOnRank0LeadsTheOthers) {
  Context ctx({.threads = 1});
  const ModelConfig config = small_config(false, 1);
  auto part = model::make_random_model(ctx, config, {.context_parallel = &ranks()});
  expect_answers_of_the_whole(ctx, ranks(), world(), config, std::move(part), 1);
}

}  // namespace
}  // namespace tessera::test
