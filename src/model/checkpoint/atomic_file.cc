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

AtomicFile::AtomicFile(std::filesystem::path path, std::int64_t bytes)
    : path_(std::move(path)), bytes_(bytes) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path_, ignored)) {
    fail(ErrorCode::file, "cannot write {}: it is a folder; give the name of a file",
         path_.string());
  }
  // The process's number keeps programs apart, the counter what one program writes at once.
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
}

void AtomicFile::fail_writing(int error) const {
  fail(ErrorCode::file, "cannot write {}: {} after {} of {} bytes; the unfinished file was removed",
       path_.string(), std::generic_category().message(error), written_,
       std::max(bytes_, written_));
}

}  // namespace tessera::model
