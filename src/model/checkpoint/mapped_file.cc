#include "model/checkpoint/mapped_file.h"

#include <sys/mman.h>

#include <cerrno>
#include <system_error>

#include "core/fail.h"

namespace tessera::model {

MappedFile::MappedFile(const std::filesystem::path& path) : file_(path) {
  if (file_.size() == 0) fail(ErrorCode::file, "{} is empty", path.string());
  const auto size = static_cast<std::size_t>(file_.size());
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file_.descriptor(), 0);
  if (data == MAP_FAILED) {
    fail(ErrorCode::file, "cannot map {}: {}", path.string(),
         std::generic_category().message(errno));
  }
  bytes_ = {static_cast<const std::byte*>(data), size};
}

MappedFile::~MappedFile() {
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());  // only takes void*
}

std::string_view MappedFile::text() const {
  return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
}

}  // namespace tessera::model
