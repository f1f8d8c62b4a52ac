#include "model/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "core/fail.h"

namespace tessera::model {
namespace {

struct Descriptor {
  explicit Descriptor(int opened) : fd(opened) {}
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  const int fd;
};

[[noreturn]] void fail_system(const char* what, const std::filesystem::path& path, int error) {
  fail(ErrorCode::file, "cannot {} {}: {}", what, path.string(),
       std::generic_category().message(error));
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  // Non-blocking, so that a pipe without a writer is refused below and not waited for.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd < 0) {
    if (errno == ENOENT) fail(ErrorCode::file, "there is no file {}", path.string());
    fail_system("open", path, errno);
  }
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) fail_system("read", path, errno);
  if (S_ISDIR(status.st_mode)) {
    fail(ErrorCode::file, "{} is a folder; a file is needed here", path.string());
  }
  if (!S_ISREG(status.st_mode)) {
    fail(ErrorCode::file, "{} is a pipe or a device; a regular file is needed here", path.string());
  }
  if (status.st_size == 0) fail(ErrorCode::file, "{} is empty", path.string());
  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) fail_system("map", path, errno);
  bytes_ = {static_cast<const std::byte*>(data), size};
}

MappedFile::~MappedFile() {
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());  // only takes void*
}

std::string_view MappedFile::text() const {
  return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
}

}  // namespace tessera::model
