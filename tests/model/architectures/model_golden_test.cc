// Compares every checkpoint of tests/data/goldens with what transformers computed for it, and with
// the float64 reference: each layer's hidden state, the logits, the greedy tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reference/model.h"
#include "reference/parity.h"
#include "support/devices.h"
#include "support/files.h"
#include "tessera/model.h"

namespace tessera::test {
namespace {

using reference::compare;
using reference::Golden;
using reference::Observed;

// The error bounds that Tessera states for every device, relative to the largest value of a level.
// Half precision rounds what passes from op to op. On the CPU, none of these models loses half of
// its bound.
constexpr double kF32Bound = 1e-4, kF16Bound = 2e-2, kBf16Bound = 1.5e-1;

std::vector<std::filesystem::path> golden_folders() {
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(data_path("goldens"))) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

struct GoldenCase {
  std::filesystem::path folder;
  Device device;
};

std::vector<GoldenCase> golden_cases() {
  std::vector<GoldenCase> cases;
  for (const auto& folder : golden_folders()) {
    for (Device device : test_devices()) cases.push_back({folder, device});
  }
  return cases;
}

// "cpu_llama_gqa": the device comes first, and ctest labels the test by it.
std::string case_name(const testing::TestParamInfo<GoldenCase>& info) {
  std::string name = info.param.folder.filename().string();
  std::replace(name.begin(), name.end(), '-', '_');
  return device_name({info.param.device, info.index}) + "_" + name;
}

class ModelGolden : public testing::TestWithParam<GoldenCase> {
 protected:
  void SetUp() override {
    const std::string why = why_unusable(GetParam().device);
    if (!why.empty()) GTEST_SKIP() << why;
    ctx_ = std::make_unique<Context>(ContextOptions{.device = GetParam().device, .threads = 2});
    golden_ = reference::read_golden(GetParam().folder / "golden.safetensors");
    model_ = load_model(*ctx_, GetParam().folder, {.dtype = DType::f32});
  }

  void expect_levels(const Observed& observed, std::int64_t prompt,
                     double bound = kF32Bound) const {
    ASSERT_EQ(observed.levels.size(), golden_.levels.size());
    for (std::size_t level = 0; level < golden_.levels.size(); ++level) {
      EXPECT_LT(
          compare(observed.levels[level], reference::entry(golden_.levels[level], prompt)).max_rel,
          bound)
          << "level " << level;
    }
    EXPECT_LT(compare(observed.logits, reference::entry(golden_.logits, prompt)).max_rel, bound);
  }

  std::unique_ptr<Context> ctx_;
  Golden golden_;
  std::unique_ptr<Model> model_;
};

INSTANTIATE_TEST_SUITE_P(Goldens, ModelGolden, testing::ValuesIn(golden_cases()), case_name);

TEST_P(ModelGolden, EveryLevelInOneStep) {
  for (std::size_t prompt = 0; prompt < golden_.prompts.size(); ++prompt) {
    SCOPED_TRACE(prompt);
    expect_levels(reference::observe(*ctx_, *model_, golden_.prompts[prompt]),
                  static_cast<std::int64_t>(prompt));
  }
}

TEST_P(ModelGolden, EveryLevelInOddSteps) {
  const std::vector<std::vector<std::int64_t>> cuts = {{1, 5, 1000}, {3}, {1}};
  for (const auto& steps : cuts) {
    SCOPED_TRACE(steps.front());
    expect_levels(reference::observe(*ctx_, *model_, golden_.prompts[0], steps), 0);
  }
}

TEST_P(ModelGolden, GreedyTokensAreTheSame) {
  const auto count = static_cast<std::int64_t>(golden_.generated.size());
  EXPECT_EQ(reference::generate_greedy(*ctx_, *model_, golden_.prompts[0], count).ids,
            golden_.generated);
}

TEST_P(ModelGolden, HalfPrecisionIsAsGoodAsItsRounding) {
  // The text is the prompt and what transformers wrote in f32. Which token would this model have
  // written?
  std::vector<std::int32_t> text = golden_.prompts[0];
  const auto first = static_cast<std::int64_t>(text.size()) - 1;
  text.insert(text.end(), golden_.generated.begin(), golden_.generated.end() - 1);
  for (const auto& [dtype, bound] : {std::pair{DType::f16, kF16Bound}, {DType::bf16, kBf16Bound}}) {
    SCOPED_TRACE(name(dtype));
    const auto model = load_model(*ctx_, GetParam().folder, {.dtype = dtype});
    EXPECT_EQ(model->make_cache(*ctx_, CachePolicy::full(), 8).keys(0).dtype, dtype);
    expect_levels(reference::observe(*ctx_, *model, golden_.prompts[0]), 0, bound);
    const std::vector<std::int64_t> steps{1, 5, 1000};
    const Observed observed = reference::observe(*ctx_, *model, text, steps);
    const std::vector<std::int32_t> chosen = reference::argmax_rows(observed.logits);
    for (std::size_t i = 0; i < golden_.generated.size(); ++i) {
      const std::int64_t row = first + static_cast<std::int64_t>(i);
      const std::int32_t token = chosen[static_cast<std::size_t>(row)];
      const double best = observed.logits.at(row, token);
      // Another token is allowed only if the two are that close.
      EXPECT_LE(best - observed.logits.at(row, golden_.generated[i]), bound * std::abs(best)) << i;
    }
  }
}

// This does not depend on the device: the reference is right, too.
TEST(ReferenceModel, MatchesEveryGolden) {
  for (const auto& folder : golden_folders()) {
    SCOPED_TRACE(folder.filename());
    Context ctx({.threads = 2});
    const Golden golden = reference::read_golden(folder / "golden.safetensors");
    const reference::ReferenceModel model(ctx, folder);
    const auto output = model.forward(golden.prompts[0]);
    for (std::size_t level = 0; level < golden.levels.size(); ++level) {
      // This is transformers' own error in f32.
      EXPECT_LT(compare(output.levels[level], reference::entry(golden.levels[level], 0)).max_rel,
                2e-5)
          << "level " << level;
    }
    EXPECT_LT(compare(output.logits, reference::entry(golden.logits, 0)).max_rel, 2e-5);
  }
}

}  // namespace
}  // namespace tessera::test
