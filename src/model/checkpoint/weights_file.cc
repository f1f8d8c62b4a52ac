#include "model/checkpoint/weights_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "core/fail.h"

namespace tessera::model {
namespace {

namespace fs = std::filesystem;

struct stat status_of(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) fail(ErrorCode::file, "there is no file {}", path.string());
    fail(ErrorCode::file, "cannot read {}: {}", path.string(),
         std::generic_category().message(errno));
  }
  return status;
}

bool is_of_others(const struct stat& status) {
  return status.st_uid != 0 && status.st_uid != ::geteuid();
}

bool is_open_to_others(const struct stat& status) {
  return (status.st_mode & static_cast<mode_t>(S_IWGRP | S_IWOTH)) != 0;
}

// Whether others can replace an entry of this folder. In a sticky one (/tmp), only the entry's
// owner can.
bool others_can_replace_in(const fs::path& folder) {
  const struct stat status = status_of(folder);
  const bool sticky = (status.st_mode & static_cast<mode_t>(S_ISVTX)) != 0;
  return is_of_others(status) || (is_open_to_others(status) && !sticky);
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

[[noreturn]] void fail_changed(const fs::path& path) {
  fail(ErrorCode::file,
       "{} was changed while it was in use; start again, and replace such a file by "
       "renaming a new one over it, or load it with --no-mmap",
       path.string());
}

Buffer copy_of(const fs::path& path) {
  const InputFile file(path);
  if (file.size() == 0) fail(ErrorCode::file, "{} is empty", path.string());
  Buffer copy(file.size());
  const std::span<std::byte> all(static_cast<std::byte*>(copy.data()),
                                 static_cast<std::size_t>(file.size()));
  if (file.read_at(0, all) < all.size() || file.has_changed()) fail_changed(path);
  return copy;
}

}  // namespace

bool others_can_write(const fs::path& path) {
  const struct stat status = status_of(path);
  if (is_of_others(status) || is_open_to_others(status)) return true;
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  return error || others_can_replace_in(folder_of(path)) || others_can_replace_in(folder_of(real));
}

WeightsFile::WeightsFile(const fs::path& path, FileAccess access) {
  const bool copies = access == FileAccess::copy ||
                      (access == FileAccess::map_if_private && others_can_write(path));
  if (copies) {
    copy_ = copy_of(path);
  } else {
    mapped_.emplace(path);
  }
}

std::span<const std::byte> WeightsFile::bytes() const {
  if (mapped_) return mapped_->bytes();
  return {static_cast<const std::byte*>(copy_.data()), static_cast<std::size_t>(copy_.bytes())};
}

void WeightsFile::check_unchanged() const {
  if (mapped_ && mapped_->file().has_changed()) fail_changed(mapped_->file().path());
}

}  // namespace tessera::model
