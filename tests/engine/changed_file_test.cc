// Weights that are written over while a mapped model is in use.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/files.h"
#include "support/refusal.h"
#include "tessera/generate.h"
#include "tessera/model.h"

namespace tessera::test {
namespace {

namespace fs = std::filesystem;

TEST(ChangedFile, IsNamedInsteadOfTheLogitsItLedTo) {
  TemporaryFolder folder;
  const fs::path weights = folder.path() / "model.safetensors";
  for (const char* file : {"config.json", "model.safetensors"}) {
    fs::copy_file(data_path("goldens/neox-serial-untied") / file, folder.path() / file);
  }
  fs::permissions(weights, fs::perms::owner_write, fs::perm_options::add);
  // The time of the last write is then another one, however fast this machine is.
  fs::last_write_time(weights, fs::file_time_type::clock::now() - std::chrono::hours(1));
  Context ctx({.threads = 1});
  const auto model = load_model(ctx, folder.path());
  KvCache cache = model->make_cache(ctx, CachePolicy::full(), 16);
  const auto half = static_cast<std::streamoff>(fs::file_size(weights) / 2);
  const std::string nans(static_cast<std::size_t>(fs::file_size(weights)) - half, '\xff');
  std::fstream(weights, std::ios::in | std::ios::out | std::ios::binary).seekp(half) << nans;
  const std::vector<std::int32_t> prompt = {1, 2, 3};
  EXPECT_TRUE(refuses(
      [&] { generate(ctx, *model, cache, nullptr, prompt, {.max_tokens = 4}); },
      weights.string() +
          " was changed while it was in use; start again, and replace such a file by renaming a "
          "new one over it, or load it with --no-mmap",
      ErrorCode::file));
}

}  // namespace
}  // namespace tessera::test
