// Files of weights that change while a model is in use, and who could change them.
#include "model/checkpoint/weights_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "support/files.h"
#include "support/refusal.h"
#include "tessera/model.h"
#include "tessera/quant.h"

namespace tessera::test {
namespace {

namespace fs = std::filesystem;
using model::others_can_write;
using model::WeightsFile;

void set_mode(const fs::path& path, unsigned mode) {
  fs::permissions(path, static_cast<fs::perms>(mode), fs::perm_options::replace);
}

class WeightsFiles : public testing::Test {
 protected:
  WeightsFiles() {
    fs::create_directory(folder_);
    set_mode(folder_, 0755);
    for (const char* file : {"config.json", "model.safetensors"}) {
      fs::copy_file(data_path("goldens/neox-serial-untied") / file, folder_ / file);
    }
    set_mode(weights_, 0644);
  }

  // The numbers of every linear layer.
  std::vector<float> numbers(const Model& model) {
    std::vector<float> all;
    for (const LayerInfo& layer : model.linear_layers()) {
      const Weight& w = layer.weight;
      const std::size_t begin = all.size();
      all.resize(begin + static_cast<std::size_t>(w.out_features * w.in_features));
      dequantize(ctx_, w, Tensor(all.data() + begin, DType::f32, {w.out_features, w.in_features}));
    }
    return all;
  }

  std::string changed() const {
    return weights_.string() +
           " was changed while it was in use; start again, and replace such a file by "
           "renaming a new one over it, or load it with --no-mmap";
  }

  TemporaryFolder parent_;
  const fs::path folder_ = parent_.path() / "model", weights_ = folder_ / "model.safetensors";
  Context ctx_{{.threads = 1}};
};

TEST_F(WeightsFiles, OthersCanWriteByModeOwnerOrFolder) {
  EXPECT_FALSE(others_can_write(weights_));
  set_mode(weights_, 0664);
  EXPECT_TRUE(others_can_write(weights_));
  set_mode(weights_, 0602);
  EXPECT_TRUE(others_can_write(weights_));
  set_mode(weights_, 0400);
  EXPECT_FALSE(others_can_write(weights_));
  set_mode(folder_, 0777);
  EXPECT_TRUE(others_can_write(weights_));
  set_mode(folder_, 01777);  // sticky, as /tmp is: entries are their owner's
  EXPECT_FALSE(others_can_write(weights_));
  EXPECT_TRUE(refuses([&] { others_can_write(folder_ / "none"); },
                      "there is no file " + (folder_ / "none").string(), ErrorCode::file));
}

TEST_F(WeightsFiles, OthersCanWriteWhatALinkLeadsTo) {
  const fs::path link = parent_.path() / "link";
  fs::create_symlink(weights_, link);
  EXPECT_FALSE(others_can_write(link));
  set_mode(folder_, 0777);
  EXPECT_TRUE(others_can_write(link));
}

TEST_F(WeightsFiles, OthersCanWriteWhatTheyOwn) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  ASSERT_EQ(chown(weights_.c_str(), 12345, 12345), 0);
  EXPECT_TRUE(others_can_write(weights_));
}

TEST_F(WeightsFiles, AreMappedOrCopiedAsAsked) {
  const auto is_mapped = [&](FileAccess access) {
    return WeightsFile(weights_, access).is_mapped();
  };
  EXPECT_TRUE(is_mapped(FileAccess::map));
  EXPECT_FALSE(is_mapped(FileAccess::copy));
  EXPECT_TRUE(is_mapped(FileAccess::map_if_private));
  set_mode(weights_, 0666);
  EXPECT_TRUE(is_mapped(FileAccess::map));
  EXPECT_FALSE(is_mapped(FileAccess::map_if_private));
  const WeightsFile mapped(weights_, FileAccess::map), copied(weights_, FileAccess::copy);
  EXPECT_TRUE(std::equal(mapped.bytes().begin(), mapped.bytes().end(), copied.bytes().begin(),
                         copied.bytes().end()));
}

// A mapped one would end the process with SIGBUS.
TEST_F(WeightsFiles, ACopiedModelSurvivesWhateverHappensToItsFile) {
  const auto mapped = load_model(ctx_, data_path("goldens/neox-serial-untied"));
  for (const FileAccess access : {FileAccess::copy, FileAccess::map_if_private}) {
    set_mode(weights_, 0666);
    const auto copied = load_model(ctx_, folder_, {.files = access});
    const auto bytes = fs::file_size(weights_);
    fs::resize_file(weights_, 0);
    EXPECT_EQ(numbers(*copied), numbers(*mapped));
    EXPECT_NO_THROW(copied->check_files());
    fs::resize_file(weights_, bytes);
    fs::copy_file(data_path("goldens/neox-serial-untied/model.safetensors"), weights_,
                  fs::copy_options::overwrite_existing);
  }
}

// Refused before anything is allocated or read.
TEST_F(WeightsFiles, ACopyThatDoesNotFitIsRefused) {
  fs::resize_file(weights_, std::uintmax_t{1} << 42);  // takes no room on disk
  try {
    load_model(ctx_, folder_, {.files = FileAccess::copy});
    ADD_FAILURE() << "was not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
  }
}

TEST_F(WeightsFiles, AMappedModelKnowsThatItsFileHasChanged) {
  const auto model = load_model(ctx_, folder_);
  EXPECT_NO_THROW(model->check_files());
  fs::copy_file(weights_, folder_ / "new");
  fs::rename(folder_ / "new", weights_);  // the right way
  EXPECT_NO_THROW(model->check_files());

  const auto again = load_model(ctx_, folder_);
  fs::last_write_time(weights_, fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_TRUE(refuses([&] { again->check_files(); }, changed(), ErrorCode::file));
  EXPECT_NO_THROW(model->check_files());
}

TEST_F(WeightsFiles, AFileThatChangesWhileItIsLoadedIsRefused) {
  bool fails = false;
  LoadOptions options;
  options.progress = [&](std::int64_t, std::int64_t) {
    fs::last_write_time(weights_, fs::file_time_type::clock::now() + std::chrono::hours(1));
    if (fails) throw Error(ErrorCode::file, "a tensor that makes no sense");
  };
  EXPECT_TRUE(refuses([&] { load_model(ctx_, folder_, options); }, changed(), ErrorCode::file));
  fails = true;  // the change explains the failure
  fs::last_write_time(weights_, fs::file_time_type::clock::now());
  EXPECT_TRUE(refuses([&] { load_model(ctx_, folder_, options); }, changed(), ErrorCode::file));
}

}  // namespace
}  // namespace tessera::test
