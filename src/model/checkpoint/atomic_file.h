// A file that appears complete or not at all: it is written under another name in the same folder
// and renamed at the end. A file that is not committed is removed, also on an exception.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace tessera::model {

class AtomicFile {
 public:
  // `bytes`: how much will be written, for messages. Throws Error (file) if the file cannot be
  // made.
  AtomicFile(std::filesystem::path path, std::int64_t bytes);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Continues where the last write() ended. Throws Error (file) when no space is left, with what
  // was needed and what was written.
  void write(std::span<const std::byte> data) { write_at(written_, data); }
  // Writes at this offset, in any order.
  void write_at(std::int64_t offset, std::span<const std::byte> data);
  // Waits until everything is on disk, then moves the file to its place. Replaces an older file.
  void commit();

 private:
  [[noreturn]] void fail_writing(int error) const;

  std::filesystem::path path_, partial_;
  std::int64_t bytes_, written_ = 0;
  int fd_ = -1;
};

// Waits until a file or folder is on disk as it is now. A rename is on disk once the folder is.
// Throws Error (file) if that fails; a file system without such a call is trusted.
void sync_file(const std::filesystem::path& path);
void sync_folder(const std::filesystem::path& path);

}  // namespace tessera::model
