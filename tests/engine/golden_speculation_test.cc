// Greedy text with guesses is the text without, token by token: every golden checkpoint and the
// bundled model, guesses from the text and from two draft models, up to fifteen of them at a time.
//
// A pass over guesses has several rows for a sequence, and attention over several queries sums in
// another order than over one. So log-probabilities agree within rounding, and a text may change
// only where two tokens are as likely as that. Rounding is 1e-4 where nothing else is rounded. A
// cache in f16 rounds keys once more. With 8-bit activations, a last bit may decide which of two
// neighbouring codes an activation gets.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "support/files.h"
#include "support/logprobs.h"
#include "support/sanitizers.h"
#include "tessera/engine.h"

namespace tessera::test {
namespace {

namespace fs = std::filesystem;

// Under a sanitizer, two passes of fifteen guesses, over the end of a page.
constexpr std::int64_t kAnswer = kSanitized ? 20 : 48, kListedLogprobs = 3;
constexpr int kPrompts = 4;

std::vector<fs::path> golden_models() {
  std::vector<fs::path> models{data_path("../../models/stories")};
  for (const auto& entry : fs::directory_iterator(data_path("goldens"))) {
    if (entry.is_directory()) models.push_back(entry.path());
  }
  std::sort(models.begin(), models.end());
  return models;
}

// Random tokens of a few kinds, so that lookups find something.
std::vector<Request> prompts_of(std::int64_t vocab) {
  std::mt19937 random(23);
  std::vector<Request> requests(kPrompts);
  for (int i = 0; i < kPrompts; ++i) {
    Request& request = requests[static_cast<std::size_t>(i)];
    const std::int64_t kinds = std::min<std::int64_t>(vocab, i % 2 == 0 ? 6 : vocab);
    for (int t = 0; t < 10 + 7 * i; ++t) {
      const auto drawn = static_cast<std::int64_t>(random()) % kinds;
      request.prompt_ids.push_back(static_cast<std::int32_t>(drawn));
    }
    request.options = {.max_tokens = kAnswer,
                       .ignore_eos = true,
                       .sampling = {.greedy = true},
                       .top_logprobs = kListedLogprobs};
  }
  return requests;
}

// How far a log-probability may be from that of the same token without guesses.
float tolerance_of(Activations activations, DType cache) {
  if (activations == Activations::int8) return 0.1F;
  return cache == DType::f16 ? 2e-3F : 1e-4F;
}

// Compares up to the first token that differs. Both tokens must be equally likely there. Returns
// whether there is one.
bool differs(const GenerateResult& found, const GenerateResult& expected, float tolerance) {
  for (std::size_t t = 0; t < expected.ids.size(); ++t) {
    const Sampled &a = found.sampled[t], &b = expected.sampled[t];
    if (a.token.id != b.token.id) {
      EXPECT_NEAR(logprob_of(b, a.token.id), b.token.logprob, 2 * tolerance) << "token " << t;
      return true;
    }
    EXPECT_NEAR(a.token.logprob, b.token.logprob, tolerance) << "token " << t;
  }
  return false;
}

struct Answered {
  std::vector<GenerateResult> results;
  EngineStats stats;
};

Answered answer_all(Context& ctx, const Model& model, DType cache,
                    const SpeculationOptions& options) {
  Engine engine(ctx, model, nullptr,
                {.context = 128,
                 .max_sequences = 1,  // so that every prompt is read in one piece
                 .page_size = 16,
                 .cache_dtype = cache,
                 .prefix_cache = false,
                 .speculation = options});
  std::vector<RequestHandle> handles;
  for (const Request& request : prompts_of(model.config().vocab)) {
    handles.push_back(engine.submit(request));
  }
  Answered answered;
  for (RequestHandle& handle : handles) answered.results.push_back(handle.wait()[0]);
  engine.drain_until(std::chrono::steady_clock::now() + std::chrono::seconds(10));
  answered.stats = engine.stats();
  return answered;
}

void compare_with_plain(Activations activations) {
  using Kind = SpeculationOptions::Kind;
  Thinned thinned(7);
  for (const fs::path& path : golden_models()) {
    if (!thinned.takes_next()) continue;
    Context ctx({.threads = 2, .activations = activations});
    const auto model = load_model(ctx, path, {.dtype = DType::f32});
    // The model itself is nearly always right, and its copy in 4 bits often wrong.
    const auto packed = load_model(
        ctx, path, {.dtype = DType::f32, .pack = QuantizeOptions{.format = Format::nf4}});
    std::int64_t accepted = 0, wrong = 0;
    for (const DType cache : {DType::f32, DType::f16}) {
      const float tolerance = tolerance_of(activations, cache);
      const Answered plain = answer_all(ctx, *model, cache, {});
      for (const SpeculationOptions& options :
           {SpeculationOptions{.kind = Kind::ngram, .adaptive = false},
            SpeculationOptions{.kind = Kind::draft, .draft = model.get()},
            SpeculationOptions{.kind = Kind::draft, .adaptive = false, .draft = model.get()},
            SpeculationOptions{
                .kind = Kind::draft, .max_tokens = 15, .adaptive = false, .draft = packed.get()}}) {
        SCOPED_TRACE(path.filename().string() + (activations == Activations::int8 ? " int8" : "") +
                     " cache " + std::string(name(cache)) + ", kind " +
                     std::to_string(static_cast<int>(options.kind)) + ", guesses " +
                     std::to_string(options.max_tokens));
        const Answered guessed = answer_all(ctx, *model, cache, options);
        int different = 0;
        for (std::size_t i = 0; i < kPrompts; ++i) {
          ASSERT_EQ(guessed.results[i].ids.size(), plain.results[i].ids.size());
          different += differs(guessed.results[i], plain.results[i], tolerance) ? 1 : 0;
        }
        EXPECT_LE(different, activations == Activations::int8 ? 1 : 0);
        accepted += guessed.stats.accepted_tokens;
        wrong += guessed.stats.drafted_tokens - guessed.stats.accepted_tokens;
      }
    }
    EXPECT_GT(accepted, 100);
    EXPECT_GT(wrong, 10);
  }
}

TEST(GoldenSpeculation, GreedyTextIsTheSameAsWithout) { compare_with_plain(Activations::exact); }

TEST(GoldenSpeculation, GreedyTextIsTheSameWithEightBitActivations) {
  compare_with_plain(Activations::int8);
}

}  // namespace
}  // namespace tessera::test
