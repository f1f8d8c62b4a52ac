#include "report_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "core/fail.h"
#include "usage_error.h"

namespace tessera::app {
namespace {

namespace fs = std::filesystem;

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path.empty() ? fs::path(".") : path, ignored);
}

}  // namespace

void check_report_file(std::string_view option, const std::string& path, std::string_view ending) {
  if (path.empty()) return;
  const fs::path file = path;
  if (file.extension() != ending) {
    fail_usage("{} {}: the name must end in {}", option, path, ending);
  }
  if (!is_folder(file.parent_path())) {
    fail_usage("{} {}: there is no folder {}", option, path, file.parent_path().string());
  }
}

void check_report_folder(std::string_view option, const std::string& path) {
  if (!path.empty() && !is_folder(path)) fail_usage("{} {}: there is no such folder", option, path);
}

void write_report_file(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) fail(ErrorCode::file, "{} could not be written; check the folder and the disk", path);
}

std::string read_report_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) fail(ErrorCode::file, "{} could not be read; give the file of an earlier run", path);
  return text;
}

}  // namespace tessera::app
