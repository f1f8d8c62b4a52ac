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

// Whether anyone but this user and root may change the file or replace it, by the mode and the
// owner of the file and of its folder, after following links. A group that may write counts as
// others, whoever is in it. Throws Error (file) if there is no file.
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
