// Files that tests read and write.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace tessera::test {

// A file or folder of tests/data.
std::filesystem::path data_path(std::string_view name);

// A file or folder of TESSERA_SHARED_DIR: models, texts and tokenizers that are not part of the
// project. It may not exist. A test then skips: if (!exists(path)) GTEST_SKIP() << missing(path);
std::filesystem::path shared_path(std::string_view name);
std::string missing(const std::filesystem::path& path);

// A new folder that is removed at the end, with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string read_text(const std::filesystem::path& path);
void write_text(const std::filesystem::path& path, std::string_view text);

}  // namespace tessera::test
