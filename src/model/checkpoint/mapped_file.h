// A file mapped into memory, read-only: its pages come from disk as they are read, and are shared
// with every other program that maps it. Renaming another file over it does no harm. If another
// program shortens it, reading ends this program with SIGBUS.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "model/checkpoint/input_file.h"

namespace tessera::model {

class MappedFile {
 public:
  // Throws Error (file) for a file that is missing, unreadable, empty, a folder or not regular.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }  // starts on a page boundary
  std::string_view text() const;
  const InputFile& file() const { return file_; }

 private:
  InputFile file_;
  std::span<const std::byte> bytes_;
};

}  // namespace tessera::model
