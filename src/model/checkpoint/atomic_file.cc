#include "model/checkpoint/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "core/fail.h"

namespace tessera::model {
namespace {

void sync_path(const std::filesystem::path& path, int kind) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | kind);
  const int result = fd < 0 ? -1 : ::fsync(fd);
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (result == 0 || error == EINVAL || error == EACCES) return;  // EACCES: write-only folders
  fail(ErrorCode::file, "cannot write {}: {}", path.string(),
       std::generic_category().message(error));
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path, std::int64_t bytes)
    : path_(std::move(path)), bytes_(bytes) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path_, ignored)) {
    fail(ErrorCode::file, "cannot write {}: it is a folder; give the name of a file",
         path_.string());
  }
  // The process's number separates programs, the counter separates files of one program.
  for (int attempt = 0; fd_ < 0; ++attempt) {
    partial_ = path_;
    partial_ += fmt::format(".partial-{}-{}", ::getpid(), attempt);
    fd_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno != EEXIST) {
      fail(ErrorCode::file, "cannot write {}: {}", path_.string(),
           std::generic_category().message(errno));
    }
  }
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(partial_.c_str());
}

void AtomicFile::write_at(std::int64_t offset, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t count = ::pwrite(fd_, data.data(), data.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_writing(errno);
    written_ += count;
    offset += count;
    data = data.subspan(static_cast<std::size_t>(count));
  }
}

void AtomicFile::commit() {
  // Some systems report a full disk only here.
  if (::fsync(fd_) != 0 && errno != EINVAL) fail_writing(errno);
  if (::rename(partial_.c_str(), path_.c_str()) != 0) fail_writing(errno);
  ::close(std::exchange(fd_, -1));
  sync_folder(path_.has_parent_path() ? path_.parent_path() : ".");
}

void AtomicFile::fail_writing(int error) const {
  fail(ErrorCode::file, "cannot write {}: {} after {} of {} bytes; the unfinished file was removed",
       path_.string(), std::generic_category().message(error), written_,
       std::max(bytes_, written_));
}

void sync_file(const std::filesystem::path& path) { sync_path(path, 0); }

void sync_folder(const std::filesystem::path& path) { sync_path(path, O_DIRECTORY); }

}  // namespace tessera::model
