// Dense checkpoint in, packed checkpoint out.
#include "model/checkpoint/quantize_checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "model/checkpoint/packed_layouts.h"
#include "support/files.h"
#include "support/refusal.h"
#include "tessera/error.h"
#include "tessera/model.h"

namespace tessera::test {
namespace {

namespace fs = std::filesystem;
using model::Checkpoint;
using model::packable_layers;
using model::PackableLayer;
using model::PackedLayouts;
using model::quantize_checkpoint;
using model::QuantizedCheckpoint;
using model::QuantizedLayer;
using model::StoredTensor;

const fs::path& dense_golden() {
  static const fs::path path = data_path("goldens/neox-serial-untied");
  return path;
}

std::vector<float> decode(Context& ctx, const Weight& weight) {
  std::vector<float> values(static_cast<std::size_t>(weight.out_features * weight.in_features));
  dequantize(ctx, weight,
             Tensor(values.data(), DType::f32, {weight.out_features, weight.in_features}));
  return values;
}

class QuantizeCheckpoint : public testing::Test {
 protected:
  fs::path out() const { return folder_.path() / "new" / "model"; }
  bool nothing_there() const { return fs::is_empty(folder_.path()); }

  TemporaryFolder folder_;
  Context ctx_;
};

TEST_F(QuantizeCheckpoint, EveryFormatIsReadBackAsItWasPacked) {
  const auto dense = Checkpoint::open(dense_golden());
  const std::vector<QuantizeOptions> every = {
      {.format = Format::nvfp4},
      {.format = Format::mxfp4},
      {.format = Format::nf4},
      {.format = Format::int4, .group = 32},
      {.format = Format::int4, .group = 32, .zero_point = true},
      {.format = Format::int8},
      {.format = Format::fp8}};
  for (const QuantizeOptions& options : every) {
    const fs::path to =
        out() / std::string(name(options.format)) / (options.zero_point ? "zero_point" : "plain");
    const QuantizedCheckpoint result = quantize_checkpoint(
        ctx_, *dense, {.out = to, .options = options, .plan = {.otherwise = options.format}});
    const auto packed = Checkpoint::open(to);
    const PackedLayouts layouts(*packed);
    std::int64_t bytes = 0;
    for (const StoredTensor& tensor : packed->tensors()) {
      bytes += static_cast<std::int64_t>(tensor.data.size());
    }
    EXPECT_EQ(result.bytes_after, bytes);
    EXPECT_LT(result.bytes_after, result.bytes_before);
    int compared = 0;
    for (const QuantizedLayer& layer : result.layers) {
      ASSERT_EQ(layouts.is_packed(layer.name), layer.packed);
      if (!layer.packed) continue;
      const Tensor was = dense->at(layer.name + ".weight").tensor();
      const PackedWeight is = layouts.read(layer.name, was.shape[0], was.shape[1]);
      const std::vector<float> expected = decode(ctx_, quantize(ctx_, was, options).weight);
      const std::vector<float> actual = decode(ctx_, is.weight);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(actual[i], expected[i], 3e-7 * std::abs(expected[i])) << layer.name;
      }
      EXPECT_GT(layer.relative_error, 0.0) << layer.name;
      EXPECT_LT(layer.relative_error, 0.2) << layer.name;
      ++compared;
    }
    EXPECT_EQ(compared, 9);  // two layers of four, and the head
  }
}

TEST_F(QuantizeCheckpoint, WhatIsNoLinearLayerIsCopied) {
  TemporaryFolder from;
  for (const char* file : {"config.json", "model.safetensors"}) {
    fs::copy_file(dense_golden() / file, from.path() / file);
  }
  write_text(from.path() / "tokenizer.json", "{}");
  write_text(from.path() / "LICENSE", "free");
  write_text(from.path() / "pytorch_model.bin", "weights in another format");
  const auto dense = Checkpoint::open(from.path());
  quantize_checkpoint(ctx_, *dense, {.out = out(), .options = {.format = Format::int8}});
  const auto packed = Checkpoint::open(out());
  int copied = 0;
  for (const StoredTensor& tensor : dense->tensors()) {
    const StoredTensor* now = packed->find(tensor.name);
    if (!now) continue;
    EXPECT_EQ(to_string(tensor), to_string(*now));
    EXPECT_TRUE(std::equal(tensor.data.begin(), tensor.data.end(), now->data.begin()));
    ++copied;
  }
  EXPECT_GT(copied, 10);  // embedding, norms, biases
  EXPECT_NE(packed->find("gpt_neox.embed_in.weight"), nullptr);
  model::Json config = packed->config();
  config.erase("quantization_config");
  EXPECT_EQ(config, dense->config());
  EXPECT_EQ(read_text(out() / "tokenizer.json"), "{}");
  EXPECT_EQ(read_text(out() / "LICENSE"), "free");
  EXPECT_FALSE(fs::exists(out() / "pytorch_model.bin"));
}

TEST_F(QuantizeCheckpoint, LayersThatThePlanKeepsDenseAreCopiedAndIgnored) {
  const auto dense = Checkpoint::open(dense_golden());
  const QuantizedCheckpoint result = quantize_checkpoint(
      ctx_, *dense,
      {.out = out(),
       .options = {.format = Format::nvfp4},
       .plan = {.rules = {{"*.attention.dense", Format::dense}, {"embed_out", Format::dense}}}});
  const auto packed = Checkpoint::open(out());
  EXPECT_NE(packed->find("embed_out.weight"), nullptr);
  EXPECT_NE(packed->find("gpt_neox.layers.1.attention.dense.weight"), nullptr);
  EXPECT_EQ(packed->find("gpt_neox.layers.1.mlp.dense_h_to_4h.weight"), nullptr);
  const model::Json expected = {"embed_out", "gpt_neox.layers.0.attention.dense",
                                "gpt_neox.layers.1.attention.dense"};
  EXPECT_EQ(packed->config()["quantization_config"]["ignore"], expected);
  const auto packed_layers = std::count_if(result.layers.begin(), result.layers.end(),
                                           [](const auto& layer) { return layer.packed; });
  EXPECT_EQ(packed_layers, 6);
}

TEST_F(QuantizeCheckpoint, TheEmbeddingIsPackedWhereAskedFor) {
  const auto dense = Checkpoint::open(dense_golden());
  quantize_checkpoint(ctx_, *dense,
                      {.out = out(), .options = {.format = Format::nf4}, .embedding = true});
  const auto packed = Checkpoint::open(out());
  const PackedLayouts layouts(*packed);
  const Tensor was = dense->at("gpt_neox.embed_in.weight").tensor();
  ASSERT_TRUE(layouts.is_packed("gpt_neox.embed_in"));
  EXPECT_EQ(decode(ctx_, layouts.read("gpt_neox.embed_in", was.shape[0], was.shape[1]).weight),
            decode(ctx_, quantize(ctx_, was, {.format = Format::nf4}).weight));
}

// A packed embedding used to be decoded when the model was loaded. It then took more memory than a
// dense one.
TEST_F(QuantizeCheckpoint, APackedEmbeddingTakesLessMemoryThanADenseOne) {
  for (const char* name : {"neox-serial-untied", "neox-serial", "llama-biases-tied"}) {
    const fs::path folder = data_path(std::string("goldens/") + name);
    const auto dense = Checkpoint::open(folder);
    for (const FormatInfo& format : formats()) {
      SCOPED_TRACE(std::string(name) + " " + std::string(format.name));
      const auto memory = [&](const char* to, bool embedding) {
        const fs::path path = out() / name / to / std::string(format.name);
        quantize_checkpoint(ctx_, *dense,
                            {.out = path,
                             .options = {.format = format.format},
                             .plan = {.otherwise = format.format},
                             .embedding = embedding});
        return load_model(ctx_, path)->weight_bytes();
      };
      const std::int64_t before = load_model(ctx_, folder)->weight_bytes();
      const std::int64_t layers = memory("layers", false), all = memory("all", true);
      EXPECT_LT(layers, before);
      EXPECT_LT(all, layers);
    }
  }
}

TEST_F(QuantizeCheckpoint, ATiedHeadIsNamedAsDense) {
  const auto dense = Checkpoint::open(data_path("goldens/llama-biases-tied"));
  ASSERT_EQ(dense->find("lm_head.weight"), nullptr);
  quantize_checkpoint(ctx_, *dense, {.out = out(), .options = {.format = Format::int8}});
  const model::Json expected = model::Json::array({"lm_head"});  // Llama's only name for it
  EXPECT_EQ(Checkpoint::open(out())->config()["quantization_config"]["ignore"], expected);
}

// It used to be known by the ends of the names that two architectures give it. A tied matrix under
// the head's name was packed like a layer.
TEST_F(QuantizeCheckpoint, TheArchitectureSaysWhatTheEmbeddingIs) {
  TemporaryFolder from;
  fs::copy_file(data_path("goldens/llama-biases-tied") / "config.json",
                from.path() / "config.json");
  const std::vector<float> values(4 * 16, 1.f);
  std::vector<model::TensorToWrite> tensors;
  for (const char* module : {"lm_head", "model.layers.0.mlp.up_proj", "other.embed_tokens"}) {
    tensors.push_back(
        {std::string(module) + ".weight", "F32", {4, 16}, std::as_bytes(std::span(values))});
  }
  model::write_safetensors(from.path() / "model.safetensors", tensors, {});
  const auto dense = Checkpoint::open(from.path());
  for (const PackableLayer& layer : packable_layers(*dense)) {
    EXPECT_EQ(layer.embedding, layer.name == "lm_head") << layer.name;
  }
  quantize_checkpoint(ctx_, *dense, {.out = out(), .options = {.format = Format::int8}});
  const auto packed = Checkpoint::open(out());
  EXPECT_NE(packed->find("lm_head.weight"), nullptr);
  EXPECT_TRUE(PackedLayouts(*packed).is_packed("other.embed_tokens"));
  EXPECT_EQ(packed->config()["quantization_config"]["ignore"], model::Json::array({"lm_head"}));
}

TEST_F(QuantizeCheckpoint, TheGroupOfInt4DividesEveryRow) {
  const auto group_for = [](std::vector<std::int64_t> rows, QuantizeOptions options) {
    std::vector<PackableLayer> layers;
    for (const std::int64_t row : rows) layers.push_back({.name = "a", .in_features = row});
    return with_fitting_group(options, layers).group;
  };
  EXPECT_EQ(group_for({256, 384}, {.format = Format::int4}), 128);
  EXPECT_EQ(group_for({256, 320}, {.format = Format::int4}), 64);
  EXPECT_EQ(group_for({288, 768}, {.format = Format::int4}), 32);
  EXPECT_EQ(group_for({100}, {.format = Format::int4}), -1);
  EXPECT_EQ(group_for({288}, {.format = Format::int4, .group = 128}), 128);
  EXPECT_EQ(group_for({288}, {.format = Format::int8}), -1);
}

TEST_F(QuantizeCheckpoint, LayersAreListedInTheOrderOfTheirNumbers) {
  const auto dense = Checkpoint::open(dense_golden());
  const std::vector<PackableLayer> layers = packable_layers(*dense);
  ASSERT_EQ(layers.size(), 10u);
  EXPECT_EQ(layers[0].name, "embed_out");
  EXPECT_EQ(layers[1].name, "gpt_neox.embed_in");
  EXPECT_TRUE(layers[1].embedding);
  EXPECT_EQ(layers[2].name, "gpt_neox.layers.0.attention.dense");
}

TEST_F(QuantizeCheckpoint, BadPlacesAreRefusedAndLoseNothing) {
  const auto dense = Checkpoint::open(dense_golden());
  const auto to = [&](const fs::path& path, bool force = false) {
    return [&, path, force] {
      quantize_checkpoint(ctx_, *dense, {.out = path, .options = {}, .force = force});
    };
  };
  EXPECT_TRUE(
      refuses(to(dense_golden(), true),
              dense_golden().string() + " would be written over itself; choose another folder"));
  write_text(folder_.path() / "file", "mine");
  EXPECT_TRUE(refuses(
      to(folder_.path() / "file"),
      (folder_.path() / "file").string() + " is not a folder; a model is written to a folder",
      ErrorCode::file));
  EXPECT_TRUE(refuses(
      to(folder_.path()),
      folder_.path().string() + " exists and is not empty; choose another folder, or give --force",
      ErrorCode::file));
  EXPECT_EQ(read_text(folder_.path() / "file"), "mine");
}

TEST_F(QuantizeCheckpoint, AFolderThatCannotBeMadeIsRefused) {
  const auto dense = Checkpoint::open(dense_golden());
  write_text(folder_.path() / "file", "mine");
  const fs::path to = folder_.path() / "file" / "model";
  EXPECT_TRUE(refuses([&] { quantize_checkpoint(ctx_, *dense, {.out = to}); },
                      "cannot make the folder " + to.string() + ": Not a directory",
                      ErrorCode::file));
}

TEST_F(QuantizeCheckpoint, ForceReplacesTheModelThatIsThere) {
  const auto dense = Checkpoint::open(dense_golden());
  fs::create_directories(out());
  // The tokenizer of the old model used to stay, and was taken for the new one's.
  const std::vector<std::string> gone = {"model-00001-of-00002.safetensors",
                                         "model.safetensors.index.json",
                                         "hf_quant_config.json",
                                         "generation_config.json",
                                         "tokenizer.json",
                                         "tokenizer_config.json",
                                         "special_tokens_map.json",
                                         "chat_template.jinja"};
  for (const std::string& file : gone) write_text(out() / file, "old");
  for (const char* file : {"model.safetensors", "notes.txt"}) write_text(out() / file, "old");
  quantize_checkpoint(ctx_, *dense, {.out = out(), .options = {}, .force = true});
  EXPECT_TRUE(PackedLayouts(*Checkpoint::open(out())).any_packed());
  for (const std::string& file : gone) EXPECT_FALSE(fs::exists(out() / file)) << file;
  EXPECT_EQ(read_text(out() / "notes.txt"), "old");
}

// Such a link in either folder, if it came last in the folder's own order, used to be a failure.
TEST_F(QuantizeCheckpoint, LinksThatLeadNowhereAreLeftAlone) {
  TemporaryFolder from;
  for (const char* file : {"config.json", "model.safetensors"}) {
    fs::copy_file(dense_golden() / file, from.path() / file);
  }
  fs::create_directories(out());
  for (int i = 0; i < 50; ++i) {
    for (const fs::path& folder : {from.path(), out()}) {
      fs::create_symlink("nowhere", folder / std::to_string(i));
    }
  }
  quantize_checkpoint(ctx_, *Checkpoint::open(from.path()), {.out = out(), .force = true});
  EXPECT_TRUE(PackedLayouts(*Checkpoint::open(out())).any_packed());
  EXPECT_TRUE(fs::is_symlink(out() / "49"));
}

// What was there used to be removed as soon as the new weights were written.
TEST_F(QuantizeCheckpoint, AFailureLeavesTheModelThatIsThereAsItWas) {
  const auto dense = Checkpoint::open(dense_golden());
  fs::create_directories(out());
  const std::vector<std::string> names = {"config.json", "model.safetensors",
                                          "model-00001-of-00002.safetensors", "notes.txt"};
  for (const std::string& name : names) write_text(out() / name, "old " + name);
  fs::create_directory(out() / "tokenizer.json");  // no file can be written here
  TemporaryFolder from;
  for (const char* file : {"config.json", "model.safetensors"}) {
    fs::copy_file(dense_golden() / file, from.path() / file);
  }
  write_text(from.path() / "tokenizer.json", "{}");
  const auto with_tokenizer = Checkpoint::open(from.path());
  EXPECT_TRUE(refuses(
      [&] { quantize_checkpoint(ctx_, *with_tokenizer, {.out = out(), .force = true}); },
      "cannot write " + (out() / "tokenizer.json").string() + ": it is a folder", ErrorCode::file));
  const auto stop = [](std::int64_t, std::int64_t) { throw Error(ErrorCode::file, "stopped"); };
  EXPECT_TRUE(refuses(
      [&] { quantize_checkpoint(ctx_, *dense, {.out = out(), .force = true, .progress = stop}); },
      "stopped", ErrorCode::file));
  for (const std::string& name : names) EXPECT_EQ(read_text(out() / name), "old " + name);
  EXPECT_EQ(std::distance(fs::directory_iterator(out()), {}), 5);
}

TEST_F(QuantizeCheckpoint, AnInputThatChangesMeanwhileIsRefused) {
  TemporaryFolder from;
  for (const char* file : {"config.json", "model.safetensors"}) {
    fs::copy_file(dense_golden() / file, from.path() / file);
  }
  const fs::path weights = from.path() / "model.safetensors";
  const auto dense = Checkpoint::open(from.path());
  const auto touch = [&](std::int64_t, std::int64_t) {
    fs::last_write_time(weights, fs::file_time_type::clock::now() + std::chrono::hours(1));
  };
  EXPECT_TRUE(refuses(
      [&] { quantize_checkpoint(ctx_, *dense, {.out = out(), .progress = touch}); },
      weights.string() +
          " was changed while it was in use; start again, and replace such a file by renaming a "
          "new one over it, or load it with --no-mmap",
      ErrorCode::file));
  EXPECT_TRUE(nothing_there());
}

TEST_F(QuantizeCheckpoint, APackedCheckpointIsRefused) {
  const fs::path golden = data_path("goldens/llama-mxfp4");
  const auto packed = Checkpoint::open(golden);
  EXPECT_TRUE(
      refuses([&] { quantize_checkpoint(ctx_, *packed, {.out = out()}); },
              golden.string() + " is packed already; give the dense checkpoint it was made from"));
  EXPECT_TRUE(nothing_there());
}

TEST_F(QuantizeCheckpoint, APlanThatPacksNothingIsRefused) {
  const auto dense = Checkpoint::open(dense_golden());
  EXPECT_TRUE(refuses(
      [&] {
        quantize_checkpoint(ctx_, *dense,
                            {.out = out(), .plan = {.rules = {{"*", Format::dense}}}});
      },
      "no layer is left to be packed: all 10 stay dense"));
}

TEST_F(QuantizeCheckpoint, AWeightThatIsNoNumberLeavesNothingBehind) {
  TemporaryFolder from;
  fs::copy_file(dense_golden() / "config.json", from.path() / "config.json");
  std::vector<float> values(4 * 16, 1.f);
  values[17] = std::numeric_limits<float>::quiet_NaN();
  model::write_safetensors(from.path() / "model.safetensors",
                           {{"embed_out.weight", "F32", {4, 16}, std::as_bytes(std::span(values))}},
                           {});
  const auto dense = Checkpoint::open(from.path());
  EXPECT_TRUE(
      refuses([&] { quantize_checkpoint(ctx_, *dense, {.out = out()}); },
              "embed_out: quantize: dense[1, 1] is nan; only finite weights can be packed"));
  EXPECT_TRUE(nothing_there());
}

TEST_F(QuantizeCheckpoint, StoppingInTheMiddleLeavesNothingBehind) {
  const auto dense = Checkpoint::open(dense_golden());
  std::int64_t last = 0;
  const auto stop = [&](std::int64_t done, std::int64_t total) {
    last = done;
    if (2 * done > total) throw Error(ErrorCode::file, "no space left");
  };
  EXPECT_TRUE(refuses([&] { quantize_checkpoint(ctx_, *dense, {.out = out(), .progress = stop}); },
                      "no space left", ErrorCode::file));
  EXPECT_GT(last, 0);
  EXPECT_TRUE(nothing_there());
}

}  // namespace
}  // namespace tessera::test
