#include "model/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/memory_ledger.h"
#include "support/files.h"
#include "support/refusal.h"
#include "support/safetensors_file.h"

namespace tessera::model {
namespace {

namespace fs = std::filesystem;
using test::refuses;
using test::safetensors_file;
using test::write_text;

std::string one_tensor(const std::string& name) {
  return safetensors_file(
      "{\"" + name + R"(": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}})", "wxyz");
}

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() { put("config.json", R"({"model_type": "llama"})"); }

  void put(const std::string& name, std::string_view text) {
    write_text(folder_.path() / name, text);
  }
  std::string path(const std::string& name = "") const {
    return name.empty() ? folder_.path().string() : (folder_.path() / name).string();
  }
  std::shared_ptr<const Checkpoint> open() const { return Checkpoint::open(folder_.path()); }
  testing::AssertionResult open_refuses(const std::string& text) const {
    return refuses([&] { open(); }, text, ErrorCode::file);
  }
  void put_shards() {
    put("model.safetensors.index.json",
        R"({"metadata": {"total_size": 8}, "weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})");
    put("1.safetensors", one_tensor("a"));
    put("2.safetensors", one_tensor("b"));
  }

  const test::TemporaryFolder folder_;
};

TEST_F(CheckpointTest, OpensASingleFile) {
  put("model.safetensors", one_tensor("a"));
  const auto checkpoint = open();
  EXPECT_EQ(checkpoint->directory(), folder_.path());
  EXPECT_EQ(checkpoint->config()["model_type"], "llama");
  EXPECT_TRUE(checkpoint->hf_quant_config().is_null());
  ASSERT_EQ(checkpoint->tensors().size(), 1U);
  EXPECT_EQ(to_string(checkpoint->at("a")), "a U8[4]");
  EXPECT_EQ(checkpoint->at("a").tensor().ptr<char>()[3], 'z');
  EXPECT_EQ(checkpoint->find("b"), nullptr);
  EXPECT_TRUE(refuses([&] { checkpoint->at("b"); },
                      path() + " has no tensor \"b\"; its config.json asks for one",
                      ErrorCode::file));
}

TEST_F(CheckpointTest, OpensShards) {
  put_shards();
  put("hf_quant_config.json", R"({"quantization": {}})");
  const auto checkpoint = open();
  EXPECT_EQ(checkpoint->tensors().size(), 2U);
  EXPECT_NE(checkpoint->find("a"), nullptr);
  EXPECT_NE(checkpoint->find("b"), nullptr);
  EXPECT_TRUE(checkpoint->hf_quant_config().is_object());
}

// The weights' reader used to take less of config.json than the config's reader and SECURITY.md.
TEST_F(CheckpointTest, ReadsWhatTheConfigMayHave) {
  put("model.safetensors", one_tensor("a"));
  put("config.json", "{}" + std::string((16 << 20) - 2, ' '));
  EXPECT_NE(open()->find("a"), nullptr);
  put("config.json", "{}" + std::string((16 << 20) - 1, ' '));
  EXPECT_TRUE(refuses([&] { open(); },
                      path() + "/config.json has 16777217 bytes; such a file has at most 16777216",
                      ErrorCode::file));
}

TEST_F(CheckpointTest, FollowsLinks) {  // as download caches lay out a model
  put("blob", one_tensor("a"));
  fs::create_symlink("blob", folder_.path() / "model.safetensors");
  EXPECT_NE(open()->find("a"), nullptr);
}

TEST_F(CheckpointTest, CopiesTensorsThatLieUnaligned) {
  // The header has 58 bytes, so the data starts at byte 66. The file itself starts on a page.
  const std::string header = R"({"x":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}}    )";
  ASSERT_EQ((8 + header.size()) % 4, 2U);
  const std::int32_t values[2] = {7, -9};
  put("model.safetensors",
      safetensors_file(header, {reinterpret_cast<const char*>(values), sizeof(values)}));
  const auto checkpoint = open();
  const Tensor aligned = checkpoint->at("x").tensor();
  EXPECT_EQ(aligned.ptr<std::int32_t>()[0], 7);
  EXPECT_EQ(aligned.ptr<std::int32_t>()[1], -9);
}

// A file of a few bytes on the disk can claim any size. Only what is used is copied, and counted.
TEST_F(CheckpointTest, AnUnalignedTensorIsCopiedWhenItIsUsed) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  std::string header = R"({"small":{"dtype":"I32","shape":[2],"data_offsets":[0,8]},)"
                       R"("huge":{"dtype":"F32","shape":[274877906944],)"
                       R"("data_offsets":[8,1099511627784]}})";
  while ((8 + header.size()) % 4 != 2) header += ' ';
  const std::int32_t values[2] = {7, -9};
  put("model.safetensors",
      safetensors_file(header, {reinterpret_cast<const char*>(values), sizeof(values)}));
  const fs::path file = folder_.path() / "model.safetensors";
  std::error_code error;
  fs::resize_file(file, fs::file_size(file) + kHuge, error);
  if (error) GTEST_SKIP() << "this file system has no sparse files: " << error.message();

  const std::int64_t before = process_ledger().held();
  {
    const auto checkpoint = open();
    EXPECT_EQ(process_ledger().held(), before);
    const Tensor small = checkpoint->at("small").tensor();
    EXPECT_EQ(small.ptr<std::int32_t>()[1], -9);
    EXPECT_EQ(checkpoint->at("small").tensor().data, small.data);  // copied once
    EXPECT_EQ(process_ledger().held(), before + 8);
    try {
      (void)checkpoint->at("huge").tensor();
      ADD_FAILURE() << "1 TiB was copied";
    } catch (const Error& refusal) {
      EXPECT_EQ(refusal.code(), ErrorCode::out_of_memory) << refusal.what();
    }
    EXPECT_EQ(process_ledger().held(), before + 8);
  }
  EXPECT_EQ(process_ledger().held(), before);
}

TEST_F(CheckpointTest, RefusesWhatIsNoModelFolder) {
  EXPECT_TRUE(refuses([&] { Checkpoint::open(folder_.path() / "no"); },
                      "there is no folder " + path("no") +
                          "; a model is a folder with config.json and model.safetensors",
                      ErrorCode::file));
  EXPECT_TRUE(refuses([&] { Checkpoint::open(folder_.path() / "config.json"); },
                      path("config.json") +
                          " is not a folder; a model is a folder with config.json and "
                          "model.safetensors",
                      ErrorCode::file));
  fs::remove(folder_.path() / "config.json");
  EXPECT_TRUE(open_refuses(path() +
                           " has no config.json that can be read; a model is a folder with "
                           "config.json and model.safetensors"));
}

TEST_F(CheckpointTest, SaysWhatToDoWithOtherFormats) {
  EXPECT_TRUE(
      open_refuses(path() + " has neither model.safetensors nor model.safetensors.index.json"));
  put("pytorch_model.bin", "PK");
  EXPECT_TRUE(open_refuses(
      path() +
      " holds PyTorch weights, which can run code when they are read; convert them to safetensors: "
      "in Python, AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(DIR)"));
  put("model.gguf", "GGUF");
  const std::string gguf =
      " holds GGUF weights, which Tessera does not read; download the model's Hugging Face "
      "safetensors, and 'tessera quantize' packs them";
  EXPECT_TRUE(open_refuses(path() + gguf));
  fs::remove(folder_.path() / "config.json");
  EXPECT_TRUE(open_refuses(path() + gguf));
  EXPECT_TRUE(refuses([&] { Checkpoint::open(folder_.path() / "model.gguf"); },
                      path("model.gguf") + gguf, ErrorCode::file));
}

TEST_F(CheckpointTest, RefusesAnIndexThatDoesNotFitItsShards) {
  put_shards();
  const std::string index = path("model.safetensors.index.json");
  put("2.safetensors", one_tensor("c"));
  EXPECT_TRUE(open_refuses(index + ": tensor \"b\" should be in \"2.safetensors\" and is not"));
  put("2.safetensors", one_tensor("a"));
  EXPECT_TRUE(open_refuses(path() + ": tensor \"a\" is in two files; it must be in one"));
  put("2.safetensors", one_tensor("a"));
  put("1.safetensors", one_tensor("b"));
  EXPECT_TRUE(open_refuses(index + ": tensor \"a\" should be in \"1.safetensors\" and is not"));
  fs::remove(folder_.path() / "1.safetensors");
  EXPECT_TRUE(open_refuses(index + " names \"1.safetensors\", which is not there; fetch it again"));
}

TEST_F(CheckpointTest, RefusesAnIndexThatLeavesTheFolder) {
  const std::string index = path("model.safetensors.index.json");
  for (const std::string name : {"../x", "/etc/passwd", "sub/x", "..", ".", ""}) {
    put("model.safetensors.index.json", R"({"weight_map": {"a": ")" + name + "\"}}");
    EXPECT_TRUE(open_refuses(index + ": the file of \"a\" is \"" + name +
                             "\", it must be the name of a file beside it"));
  }
  put("model.safetensors.index.json", R"({"weight_map": {"a": 1}})");
  EXPECT_TRUE(
      open_refuses(index + ": the file of \"a\" is 1, it must be the name of a file beside it"));
  for (const char* text : {"{}", R"({"weight_map": {}})", R"({"weight_map": null})"}) {
    put("model.safetensors.index.json", text);
    EXPECT_TRUE(open_refuses(
        index + ": weight_map is missing or empty, it must say which file has which tensor"));
  }
}

}  // namespace
}  // namespace tessera::model
