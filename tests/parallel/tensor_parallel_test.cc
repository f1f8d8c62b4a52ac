// Every golden checkpoint and every packed format, split over the ranks of this run: logits within
// 1e-4 of one process, the same tokens, 1/n of the memory; and an Engine on rank 0 that leads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model/architectures/shard.h"
#include "model/checkpoint/random_weights.h"
#include "parallel/ranks.h"
#include "reference/parity.h"
#include "support/changed_checkpoint.h"
#include "support/files.h"
#include "support/refusal.h"
#include "support/sanitizers.h"
#include "support/small_models.h"
#include "tessera/buffer.h"
#include "tessera/model.h"

namespace tessera::test {
namespace {

constexpr double kTensorBound = 1e-4;

// ---- goldens ------------------------------------------------------------------------------------

// Checkpoints whose heads, or blocks of packed columns, so many ranks would cut.
std::set<std::string> refused_by(int size) {
  switch (size) {
    case 1:
      return {};
    case 2:
      return {"neox-head80-old-keys", "llama-int4"};
    case 4:
      return {"neox-head80-old-keys",
              "llama-int4",
              "llama-int4-zero-points",
              "llama-int8-group",
              "llama-int8-zero-points",
              "llama-mixed-patterns",
              "llama-mxfp4"};
    default:
      return {"*"};  // no golden has a number of heads that three divides
  }
}

TEST(TensorParallel, EveryGoldenHasTheLogitsAndTokensOfOneProcess) {
  const std::set<std::string> refused = refused_by(ranks().size());
  Context ctx({.threads = 1});
  for (const auto& entry : std::filesystem::directory_iterator(data_path("goldens"))) {
    if (!entry.is_directory()) continue;
    const std::string name = entry.path().filename().string();
    SCOPED_TRACE(name);
    const LoadOptions options{.dtype = DType::f32, .tensor_parallel = &ranks()};
    if (refused.contains(name) || refused.contains("*")) {
      EXPECT_THROW(load_model(ctx, entry.path(), options), Error);
      continue;
    }
    const auto golden = reference::read_golden(entry.path() / "golden.safetensors");
    const auto whole = load_model(ctx, entry.path(), {.dtype = DType::f32});
    const auto part = load_model(ctx, entry.path(), options);
    const std::vector<std::int64_t> steps{1, 5, 1000};
    const auto expected = reference::observe(ctx, *whole, golden.prompts[0], steps);
    const auto actual = reference::observe(ctx, *part, golden.prompts[0], steps);
    for (std::size_t level = 0; level < expected.levels.size(); ++level) {
      EXPECT_LT(reference::compare(actual.levels[level], expected.levels[level]).max_rel,
                kTensorBound);
    }
    EXPECT_LT(reference::compare(actual.logits, expected.logits).max_abs, kTensorBound);
    const auto count = static_cast<std::int64_t>(golden.generated.size());
    EXPECT_EQ(reference::generate_greedy(ctx, *part, golden.prompts[0], count).ids,
              golden.generated);
  }
}

TEST(TensorParallel, RefusalsSayWhatWouldBeCut) {
  if (ranks().size() != 4) GTEST_SKIP() << "for four ranks";
  Context ctx({.threads = 1});
  const LoadOptions options{.tensor_parallel = &ranks()};
  const auto refusal_of = [&](const char* golden) -> std::string {
    try {
      load_model(ctx, data_path("goldens") / golden, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal_of("neox-head80-old-keys"),
            "1 heads with 1 key/value heads cannot be split over 4 processes without cutting one; "
            "the number of processes must divide the heads");
  EXPECT_NE(refusal_of("llama-mxfp4")
                .find("of a mxfp4 weight would cut a block of 32; use fewer "
                      "processes, or another format"),
            std::string::npos)
      << refusal_of("llama-mxfp4");
}

// ---- shapes that odd numbers of ranks divide, every format -------------------------------------

TEST(TensorParallel, EveryFormatAndOddSplits) {
  Context ctx({.threads = 1});
  const std::vector<std::int32_t> prompt{5, 300, 7, 8, 330, 0, 45};
  std::vector<std::optional<QuantizeOptions>> packs{std::nullopt};
  for (const FormatInfo& format : formats()) {
    packs.push_back(QuantizeOptions{.format = format.format, .search = ScaleSearch::from_max});
  }
  for (const bool neox : {true, false}) {
    const ModelConfig config = small_config(neox, ranks().size());
    for (std::size_t i = 0; i < packs.size(); ++i) {
      // Slow under a sanitizer: every format in one of the architectures.
      if (kSanitized && (i % 2 == 0) != neox) continue;
      const auto& pack = packs[i];
      SCOPED_TRACE(pack ? name(pack->format) : "dense");
      const auto whole = model::make_random_model(ctx, config, {.pack = pack});
      const auto part =
          model::make_random_model(ctx, config, {.pack = pack, .tensor_parallel = &ranks()});
      const auto expected = reference::observe(ctx, *whole, prompt);
      const auto actual = reference::observe(ctx, *part, prompt);
      EXPECT_LT(reference::compare(actual.logits, expected.logits).max_abs, kTensorBound);
      EXPECT_EQ(reference::generate_greedy(ctx, *part, prompt, 6).ids,
                reference::generate_greedy(ctx, *whole, prompt, 6).ids);
    }
  }
}

TEST(TensorParallel, EachRankHasItsShareOfTheMemory) {
  Context ctx({.threads = 1});
  ModelConfig config = small_config(true, ranks().size());
  config.intermediate = 4 * config.hidden;
  config.vocab = 768;
  const int size = ranks().size();
  const auto whole = model::make_random_model(ctx, config);
  const auto part = model::make_random_model(ctx, config, {.tensor_parallel = &ranks()});
  const auto share = [&](std::int64_t mine, std::int64_t all) {
    return static_cast<double>(mine) / static_cast<double>(all) * size;
  };
  EXPECT_LT(share(part->weight_bytes(), whole->weight_bytes()), 1.1);
  EXPECT_LT(share(part->make_cache(ctx, CachePolicy::full(), 128).bytes(),
                  whole->make_cache(ctx, CachePolicy::full(), 128).bytes()),
            1.1);
}

// ---- the largest logits -------------------------------------------------------------------------

// The logits of some rows, of which the `largest` will be read.
std::vector<std::vector<float>> rows_of(Context& ctx, const Model& model, std::int64_t largest) {
  const std::vector<std::int32_t> prompt{5, 30, 7, 8, 33, 0, 45};
  KvCache cache = model.make_cache(ctx, CachePolicy::full(), 16, 16, /*logit_rows=*/3);
  const Buffer logits(DType::f32, {3, model.config().vocab}, ctx.device());
  const CacheStep& step = cache.step(ctx, prompt, 3);
  model.forward(ctx, {.step = &step, .logits = logits.tensor(), .largest_logits = largest});
  std::vector<std::vector<float>> rows;
  for (std::int64_t row = 0; row < 3; ++row) {
    const auto* begin = logits.tensor().select(0, row).ptr<const float>();
    rows.emplace_back(begin, begin + model.config().vocab);
  }
  return rows;
}

// The ids of the k largest, the lower one first among equals.
std::vector<std::int32_t> largest_ids(const std::vector<float>& row, std::int64_t k) {
  std::vector<std::int32_t> ids(row.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](std::int32_t a, std::int32_t b) {
    return row[static_cast<std::size_t>(a)] > row[static_cast<std::size_t>(b)];
  });
  ids.resize(static_cast<std::size_t>(k));
  return ids;
}

void expect_the_largest(Context& ctx, const Model& part) {
  const auto all = rows_of(ctx, part, 0);
  for (const std::int64_t k : {1, 2, 5, 20}) {
    SCOPED_TRACE(k);
    const auto few = rows_of(ctx, part, k);
    if (ranks().rank() != 0) continue;  // who does not draw
    for (std::size_t row = 0; row < all.size(); ++row) {
      EXPECT_EQ(largest_ids(few[row], k), largest_ids(all[row], k));
      std::int64_t sent = 0;
      for (std::size_t id = 0; id < all[row].size(); ++id) {
        if (few[row][id] == -INFINITY) continue;
        ++sent;
        EXPECT_EQ(few[row][id], all[row][id]);
      }
      EXPECT_EQ(sent, ranks().size() == 1 ? std::ssize(all[row]) : k * ranks().size());
    }
  }
}

TEST(TensorParallel, OnlyTheLargestLogitsAreSentWhereNoOthersAreRead) {
  Context ctx({.threads = 1});
  for (const bool neox : {true, false}) {
    const auto part = model::make_random_model(ctx, small_config(neox, ranks().size()),
                                               {.tensor_parallel = &ranks()});
    expect_the_largest(ctx, *part);
  }
}

// Every row of the head is the same, and so is every logit.
TEST(TensorParallel, OfEqualLogitsTheLowestIdsAreTheLargest) {
  if (ranks().size() == 3) GTEST_SKIP() << "no golden has a number of heads that three divides";
  Context ctx({.threads = 1});
  const std::filesystem::path golden = data_path("goldens/neox-parallel");
  TemporaryFolder folder;
  copy_checkpoint(golden, folder.path());
  EditableFile weights = read_editable(golden / "model.safetensors");
  EditableTensor& head = weights.at("embed_out.weight");
  const auto row = static_cast<std::ptrdiff_t>(head.data.size()) / head.shape[0];
  for (std::int64_t i = 1; i < head.shape[0]; ++i) {
    std::copy_n(head.data.begin(), row, head.data.begin() + i * row);
  }
  weights.write(folder.path() / "model.safetensors");
  const auto part =
      load_model(ctx, folder.path(), {.dtype = DType::f32, .tensor_parallel = &ranks()});
  expect_the_largest(ctx, *part);
  const auto few = rows_of(ctx, *part, 2);
  if (ranks().rank() == 0) {
    EXPECT_EQ(largest_ids(few[0], 2), (std::vector<std::int32_t>{0, 1}));
  }
}

// ---- rank 0 leads -------------------------------------------------------------------------------

TEST(TensorParallel, AnEngineOnRank0LeadsTheOthers) {
  Context ctx({.threads = 1});
  const ModelConfig config = small_config(true, ranks().size());
  auto part = model::make_random_model(ctx, config, {.tensor_parallel = &ranks()});
  // A second pool, after the first has ended.
  expect_answers_of_the_whole(ctx, ranks(), world(), config, std::move(part), 2);
}

}  // namespace
}  // namespace tessera::test
