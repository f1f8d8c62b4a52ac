#include "model/checkpoint/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "core/fail.h"

namespace tessera::model {
namespace {

[[noreturn]] void fail_to(const char* what, const std::filesystem::path& path, int error) {
  fail(ErrorCode::file, "cannot {} {}: {}", what, path.string(),
       std::generic_category().message(error));
}

// Up to `most` bytes. The size that a file reports may be out of date, and is 0 for files of /proc,
// so it is read to its end.
std::string read_up_to(const InputFile& file, std::int64_t most) {
  constexpr std::int64_t kChunk = 1 << 16;
  std::string text;
  for (std::int64_t wanted = std::max(file.size() + 1, kChunk);; wanted = kChunk) {
    const auto done = static_cast<std::int64_t>(text.size());
    const std::int64_t room = std::min(wanted, most - done);
    if (room <= 0) return text;
    text.resize(static_cast<std::size_t>(done + room));
    const std::size_t count = file.read_at(
        done, std::as_writable_bytes(std::span(text)).subspan(static_cast<std::size_t>(done)));
    text.resize(static_cast<std::size_t>(done) + count);
    if (std::cmp_less(count, room)) return text;
  }
}

}  // namespace

InputFile::InputFile(std::filesystem::path path) : path_(std::move(path)) {
  // Non-blocking, so that a pipe without a writer does not block here and is refused below.
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) {
    if (errno == ENOENT) fail(ErrorCode::file, "there is no file {}", path_.string());
    fail_to("open", path_, errno);
  }
  try {
    stamp_ = stamp();
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

InputFile::~InputFile() { ::close(fd_); }

InputFile::Stamp InputFile::stamp() const {
  struct stat status {};
  if (::fstat(fd_, &status) != 0) fail_to("read", path_, errno);
  if (S_ISDIR(status.st_mode)) {
    fail(ErrorCode::file, "{} is a folder; a file is needed here", path_.string());
  }
  if (!S_ISREG(status.st_mode)) {
    fail(ErrorCode::file, "{} is a pipe or a device; a regular file is needed here",
         path_.string());
  }
  return {status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

std::size_t InputFile::read_at(std::int64_t offset, std::span<std::byte> to) const {
  std::size_t done = 0;
  while (done < to.size()) {
    const ssize_t count =
        ::pread(fd_, to.data() + done, to.size() - done, offset + static_cast<std::int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_to("read", path_, errno);
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

bool InputFile::has_changed() const { return stamp() != stamp_; }

std::string read_small_file(const std::filesystem::path& path, std::int64_t max_bytes) {
  const InputFile file(path);
  // If the file reports that it is too large, nothing is read. It may also have grown meanwhile.
  std::string text = file.size() > max_bytes ? "" : read_up_to(file, max_bytes + 1);
  const std::int64_t bytes = std::max(file.size(), static_cast<std::int64_t>(text.size()));
  if (bytes > max_bytes) {
    fail(ErrorCode::file, "{} has {} bytes; such a file has at most {}", path.string(), bytes,
         max_bytes);
  }
  return text;
}

std::string read_file_start(const std::filesystem::path& path, std::int64_t bytes) {
  return read_up_to(InputFile(path), bytes);
}

bool is_named(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::status(path, error).type() != std::filesystem::file_type::not_found;
}

}  // namespace tessera::model
