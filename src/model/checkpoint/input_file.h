// A regular file that is open for reading. Folders are refused, and so are pipes and devices, which
// may block or never end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace tessera::model {

class InputFile {
 public:
  // Throws Error (file) for a file that is missing, unreadable, a folder or not a regular file.
  explicit InputFile(std::filesystem::path path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::int64_t size() const { return stamp_.bytes; }  // when it was opened
  int descriptor() const { return fd_; }

  // Fills `to` from this offset on, and returns how many bytes there were: fewer only at the end of
  // the file.
  std::size_t read_at(std::int64_t offset, std::span<std::byte> to) const;

  // Whether someone has written to the file since it was opened, by its size and the time of its
  // last change. Another file under its name does not count: this one is still as it was.
  bool has_changed() const;

 private:
  struct Stamp {
    std::int64_t bytes = 0, seconds = 0, nanoseconds = 0;
    bool operator==(const Stamp&) const = default;
  };
  // Of a regular file. Refuses every other kind.
  Stamp stamp() const;

  std::filesystem::path path_;
  int fd_ = -1;
  Stamp stamp_;
};

// All of a small file, read at once: a change of the file during or after the call does no harm.
// Refuses a file of more than `max_bytes`. An empty file is an empty text.
std::string read_small_file(const std::filesystem::path& path, std::int64_t max_bytes);

// The first bytes of a file of any size.
std::string read_file_start(const std::filesystem::path& path, std::int64_t bytes);

// Whether there is something under this name: not for a link that leads nowhere, but for a name
// that cannot be looked up (a loop of links, a folder without permission). Opening it gives the
// reason.
bool is_named(const std::filesystem::path& path);

}  // namespace tessera::model
