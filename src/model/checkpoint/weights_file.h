// The bytes of a file of weights, mapped or copied as FileAccess says.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>

#include "model/checkpoint/mapped_file.h"
#include "tessera/buffer.h"
#include "tessera/model.h"

namespace tessera::model {

// May anyone but this user and root change the file or put another one in its place? The mode and
// the owner of the file tell, and those of the folder it is in, after links are followed. A group
// that may write counts as others, whoever is in it. Throws Error (file) where there is no file.
bool others_can_write(const std::filesystem::path& path);

class WeightsFile {
 public:
  WeightsFile(const std::filesystem::path& path, FileAccess access);

  std::span<const std::byte> bytes() const;  // starts on a page boundary, or a Buffer's
  bool is_mapped() const { return mapped_.has_value(); }
  // Throws Error (file) if the file is mapped and someone has written to it since.
  void check_unchanged() const;

 private:
  std::optional<MappedFile> mapped_;
  Buffer copy_;
};

}  // namespace tessera::model
