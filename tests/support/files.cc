#include "support/files.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace tessera::test {

std::filesystem::path data_path(std::string_view name) {
  const char* elsewhere =
      std::getenv("TESSERA_TEST_DATA");  // for programs built on another machine
  return std::filesystem::path(elsewhere ? elsewhere : TESSERA_TEST_DATA) / name;
}

std::filesystem::path shared_path(std::string_view name) {
  return std::filesystem::path(TESSERA_SHARED_DIR) / name;
}

std::string missing(const std::filesystem::path& path) {
  return path.string() + " does not exist (if it is elsewhere, set TESSERA_SHARED_DIR)";
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "tessera-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make the folder " + name);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

}  // namespace tessera::test
