// Loading checkpoints: what is shared, packed, tied, noted and refused.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reference/model.h"
#include "reference/parity.h"
#include "support/changed_checkpoint.h"
#include "support/files.h"
#include "support/refusal.h"
#include "tessera/model.h"

namespace tessera::test {
namespace {

using reference::compare;

constexpr double kBound = 1e-4;

std::filesystem::path golden_model(const std::string& name) { return data_path("goldens/" + name); }

std::vector<std::int32_t> prompt_of(const std::filesystem::path& folder) {
  return reference::read_golden(folder / "golden.safetensors").prompts.front();
}

// A golden's checkpoint with one thing changed.
class Changed {
 public:
  explicit Changed(const std::string& name) : from_(golden_model(name)) {
    copy_checkpoint(from_, folder_.path());
    file = read_editable(from_ / "model.safetensors");
  }
  const std::filesystem::path& path() {
    file.write(folder_.path() / "model.safetensors");
    return folder_.path();
  }
  const std::filesystem::path& original() const { return from_; }

  EditableFile file;

 private:
  std::filesystem::path from_;
  TemporaryFolder folder_;
};

reference::Array logits_of(const std::filesystem::path& folder,
                           const std::vector<std::int32_t>& prompt) {
  Context ctx({.threads = 2});
  return reference::observe(ctx, *load_model(ctx, folder), prompt).logits;
}

// ---- refusals -----------------------------------------------------------------------------------

TEST(LoadModel, NamesAMissingTensor) {
  Changed changed("llama-gqa");
  changed.file.remove("model.layers.1.mlp.up_proj.weight");
  Context ctx({.threads = 1});
  try {
    load_model(ctx, changed.path());
    FAIL() << "was not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::file);
    EXPECT_NE(std::string(error.what()).find("model.layers.1.mlp.up_proj.weight"),
              std::string::npos)
        << error.what();
  }
}

TEST(LoadModel, NamesATensorOfAnotherShapeAndBothShapes) {
  Changed changed("llama-gqa");
  changed.file.at("model.layers.0.self_attn.k_proj.weight").shape = {64, 16};
  Context ctx({.threads = 1});
  EXPECT_TRUE(refuses([&] { load_model(ctx, changed.path()); },
                      "tensor model.layers.0.self_attn.k_proj.weight has shape [64, 16], but "
                      "config.json asks for [16, 64]",
                      ErrorCode::file));
  Changed vector("neox-parallel");
  vector.file.at("gpt_neox.final_layer_norm.bias").shape = {8, 8};
  EXPECT_TRUE(refuses([&] { load_model(ctx, vector.path()); },
                      "tensor gpt_neox.final_layer_norm.bias has shape [8, 8], but config.json "
                      "asks for [64]",
                      ErrorCode::file));
}

TEST(LoadModel, RefusesDenseWeightsOfOtherDtypes) {
  Changed changed("llama-gqa");
  changed.file.at("model.norm.weight").dtype = "I32";
  Context ctx({.threads = 1});
  EXPECT_TRUE(refuses([&] { load_model(ctx, changed.path()); },
                      "tensor model.norm.weight is I32; dense weights are F32, F16 or BF16",
                      ErrorCode::file));
}

TEST(LoadModel, RefusesOptionsThatMakeNoSense) {
  Context ctx({.threads = 1});
  EXPECT_TRUE(refuses([&] { load_model(ctx, golden_model("llama-gqa"), {.dtype = DType::i8}); },
                      "a model computes in f32, f16 or bf16, got i8"));
  EXPECT_TRUE(refuses(
      [&] {
        load_model(ctx, golden_model("llama-gqa"),
                   {.pack = QuantizeOptions{}, .keep_dense = {"*.o_proj", "*.oproj"}});
      },
      "keep_dense pattern '*.oproj' matches no layer; the first is "
      "model.layers.0.self_attn.q_proj, the last lm_head"));
}

TEST(LoadModel, NamesTheLayerThatCannotBePacked) {
  Changed changed("neox-serial");
  changed.file.at("gpt_neox.layers.1.mlp.dense_h_to_4h.weight").at<float>(65) = NAN;
  Context ctx({.threads = 1});
  EXPECT_TRUE(refuses([&] { load_model(ctx, changed.path(), {.pack = QuantizeOptions{}}); },
                      "gpt_neox.layers.1.mlp.dense_h_to_4h: quantize: dense[1, 1] is nan; only "
                      "finite weights can be packed"));
}

// ---- notes --------------------------------------------------------------------------------------

TEST(LoadModel, NotesTensorsThatItDoesNotUse) {
  Changed changed("llama-gqa");
  Context ctx({.threads = 1});
  EXPECT_TRUE(load_model(ctx, changed.path())->notes().empty());
  changed.file.add("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {4}, 4);
  EXPECT_TRUE(load_model(ctx, changed.path())->notes().empty());
  changed.file.add("model.layers.0.extra.weight", "F32", {4}, 4);
  EXPECT_EQ(load_model(ctx, changed.path())->notes(),
            std::vector<std::string>{
                "1 tensor of the checkpoint is not used: \"model.layers.0.extra.weight\""});
}

TEST(LoadModel, IgnoresTheTablesOfOldGptNeoxFiles) {
  Changed changed("neox-parallel");
  changed.file.add("gpt_neox.layers.0.attention.bias", "U8", {1, 1, 16, 16}, 1);
  changed.file.add("gpt_neox.layers.0.attention.masked_bias", "F32", {1}, 4);
  changed.file.add("gpt_neox.layers.0.attention.rotary_emb.inv_freq", "F32", {2}, 4);
  Context ctx({.threads = 1});
  EXPECT_TRUE(load_model(ctx, changed.path())->notes().empty());
}

// ---- tied heads ---------------------------------------------------------------------------------

TEST(LoadModel, ATiedHeadTakesNoMemory) {
  Context ctx({.threads = 1});
  const auto model = load_model(ctx, golden_model("neox-serial"));
  std::int64_t stored = 0;
  for (const EditableTensor& tensor :
       read_editable(golden_model("neox-serial") / "model.safetensors").tensors) {
    stored += static_cast<std::int64_t>(tensor.data.size());
  }
  EXPECT_EQ(model->weight_bytes(), stored);
  EXPECT_EQ(model->linear_layers().back().name, "gpt_neox.embed_in");
}

TEST(LoadModel, EitherOfATiedPairWillDo) {
  Changed changed("neox-serial");
  const auto prompt = prompt_of(changed.original());
  changed.file.at("gpt_neox.embed_in.weight").name = "embed_out.weight";
  EXPECT_EQ(logits_of(changed.path(), prompt).data, logits_of(changed.original(), prompt).data);
  Context ctx({.threads = 1});
  const auto expected = reference::ReferenceModel(ctx, changed.path()).forward(prompt);
  EXPECT_LT(compare(logits_of(changed.path(), prompt), expected.logits).max_rel, kBound);
}

TEST(LoadModel, BothOfATiedPairAreTiedOnlyWhereTheyAreTheSame) {
  Changed changed("llama-biases-tied");
  EditableTensor head = changed.file.at("model.embed_tokens.weight");
  head.name = "lm_head.weight";
  changed.file.tensors.push_back(head);
  Context ctx({.threads = 1});
  EXPECT_TRUE(load_model(ctx, changed.path())->notes().empty());
  EXPECT_EQ(load_model(ctx, changed.path())->linear_layers().back().name, "model.embed_tokens");
  changed.file.at("lm_head.weight").at<float>(7) += 1;
  const auto model = load_model(ctx, changed.path());
  EXPECT_EQ(model->linear_layers().back().name, "lm_head");
  EXPECT_EQ(model->notes(),
            std::vector<std::string>{"config.json ties lm_head to model.embed_tokens, but the "
                                     "checkpoint has both with different values: not tied"});
}

// ---- packing ------------------------------------------------------------------------------------

TEST(LoadModel, PacksWhatIsNotKeptDense) {
  for (const char* name : {"neox-parallel", "neox-serial", "llama-gqa", "qwen3"}) {
    SCOPED_TRACE(name);
    Context ctx({.threads = 2});
    const bool neox = std::string(name).starts_with("neox");
    const LoadOptions options{.pack = QuantizeOptions{.format = Format::nvfp4},
                              .keep_dense = {neox ? "*.attention.dense" : "*.o_proj"}};
    const auto dense = load_model(ctx, golden_model(name)),
               packed = load_model(ctx, golden_model(name), options);
    EXPECT_LT(packed->weight_bytes(), dense->weight_bytes());
    for (const LayerInfo& layer : packed->linear_layers()) {
      const bool kept = layer.name.ends_with("attention.dense") || layer.name.ends_with("o_proj");
      EXPECT_EQ(layer.weight.format, kept ? Format::dense : Format::nvfp4) << layer.name;
    }
    const auto prompt = prompt_of(golden_model(name));
    const auto expected =
        reference::ReferenceModel(ctx, golden_model(name), options).forward(prompt);
    const auto actual = reference::observe(ctx, *packed, prompt);
    for (std::size_t i = 0; i < expected.levels.size(); ++i) {
      EXPECT_LT(compare(actual.levels[i], expected.levels[i]).max_rel, kBound) << "level " << i;
    }
    EXPECT_LT(compare(actual.logits, expected.logits).max_rel, kBound);
  }
}

TEST(LoadModel, ATiedHeadStaysDenseByItsOwnName) {
  Context ctx({.threads = 1});
  for (const char* pattern : {"embed_out", "gpt_neox.embed_in"}) {
    const auto model = load_model(ctx, golden_model("neox-serial"),
                                  {.pack = QuantizeOptions{}, .keep_dense = {pattern}});
    EXPECT_EQ(model->linear_layers().back().weight.format, Format::dense);
    EXPECT_EQ(model->linear_layers().front().weight.format, Format::nvfp4);
  }
}

// The embedding reads rows of the packed table, and a tied head multiplies with the same copy.
TEST(LoadModel, PacksTheEmbeddingAndSharesItWithATiedHead) {
  for (const char* name : {"neox-serial", "llama-biases-tied", "neox-serial-untied", "llama-gqa"}) {
    for (const FormatInfo& format : formats()) {
      SCOPED_TRACE(std::string(name) + " " + std::string(format.name));
      Context ctx({.threads = 2});
      LoadOptions options{.dtype = DType::f32, .pack = {{.format = format.format}}};
      const auto head_alone = load_model(ctx, golden_model(name), options);
      options.pack_embedding = true;
      const auto packed = load_model(ctx, golden_model(name), options);
      EXPECT_LT(packed->weight_bytes(), head_alone->weight_bytes());
      const auto prompt = prompt_of(golden_model(name));
      const auto expected =
          reference::ReferenceModel(ctx, golden_model(name), options).forward(prompt);
      const auto actual = reference::observe(ctx, *packed, prompt);
      EXPECT_LT(compare(actual.levels[0], expected.levels[0]).max_rel, 1e-6);
      EXPECT_LT(compare(actual.logits, expected.logits).max_rel, kBound);
    }
  }
}

TEST(LoadModel, TheEmbeddingStaysDenseByEitherName) {
  Context ctx({.threads = 1});
  const auto bytes = [&](std::vector<std::string> keep_dense) {
    return load_model(ctx, golden_model("neox-serial"),
                      {.pack = QuantizeOptions{},
                       .pack_embedding = true,
                       .keep_dense = std::move(keep_dense)})
        ->weight_bytes();
  };
  EXPECT_EQ(bytes({"embed_out"}), bytes({"gpt_neox.embed_in"}));
  EXPECT_LT(bytes({}), bytes({"embed_out"}));
}

TEST(LoadModel, LayersThatTheFileHasPackedStayAsTheyAre) {
  Context ctx({.threads = 1});
  const auto model = load_model(ctx, golden_model("llama-nvfp4"),
                                {.pack = QuantizeOptions{.format = Format::int8}});
  EXPECT_EQ(model->linear_layers().front().weight.format, Format::nvfp4);
  EXPECT_EQ(model->linear_layers().back().name, "lm_head");
  EXPECT_EQ(model->linear_layers().back().weight.format, Format::int8);
}

TEST(LoadModel, WeightsOfHalfPrecisionStaySo) {
  Context ctx({.threads = 1});
  const auto model = load_model(ctx, golden_model("neox-head80-old-keys"));
  EXPECT_EQ(model->dtype(), DType::f32);
  for (const LayerInfo& layer : model->linear_layers()) {
    EXPECT_EQ(layer.weight.data.dtype, DType::f16) << layer.name;
  }
}

TEST(LoadModel, ProgressRisesToTheEnd) {
  Context ctx({.threads = 1});
  std::int64_t last = 0, total = 0;
  load_model(ctx, golden_model("llama-nvfp4"),
             {.progress = [&](std::int64_t done, std::int64_t all) {
               EXPECT_GE(done, last);
               last = done;
               total = all;
             }});
  EXPECT_GT(total, 0);
  EXPECT_EQ(last, total);
}

}  // namespace
}  // namespace tessera::test
