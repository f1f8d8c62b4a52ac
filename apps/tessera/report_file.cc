#include "report_file.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <system_error>

#include "model/checkpoint/atomic_file.h"
#include "model/checkpoint/input_file.h"
#include "usage_error.h"

namespace tessera::app {
namespace {

namespace fs = std::filesystem;

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path.empty() ? fs::path(".") : path, ignored);
}

}  // namespace

void check_report_place(std::string_view option, const std::string& path) {
  const fs::path file = path;
  if (!is_folder(file.parent_path())) {
    fail_usage("{} {}: there is no folder {}", option, path, file.parent_path().string());
  }
  std::error_code ignored;
  const fs::file_status status = fs::status(file, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    fail_usage("{} {}: this is a folder, a pipe or a device; give the name of a file", option,
               path);
  }
}

void check_report_file(std::string_view option, const std::string& path, std::string_view ending) {
  if (path.empty()) return;
  if (fs::path(path).extension() != ending) {
    fail_usage("{} {}: the name must end in {}", option, path, ending);
  }
  check_report_place(option, path);
}

void check_report_folder(std::string_view option, const std::string& path) {
  if (!path.empty() && !is_folder(path)) fail_usage("{} {}: there is no such folder", option, path);
}

void write_report_file(const std::string& path, std::string_view text) {
  model::AtomicFile file(path, static_cast<std::int64_t>(text.size()));
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

std::string read_report_file(const std::string& path) {
  constexpr std::int64_t kMost = 64 << 20;  // a run writes some kilobytes
  return model::read_small_file(path, kMost);
}

}  // namespace tessera::app
