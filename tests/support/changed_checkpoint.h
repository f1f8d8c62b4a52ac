// Takes safetensors files apart and puts them together again with something changed, to make
// checkpoints that are wrong in one place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera::test {

struct EditableTensor {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> data;

  template <typename T>
  T& at(std::size_t index) {
    return reinterpret_cast<T*>(data.data())[index];
  }
};

struct EditableFile {
  std::vector<EditableTensor> tensors;

  EditableTensor& at(const std::string& name);
  void remove(const std::string& name);
  // Adds a tensor of zeros.
  void add(const std::string& name, const std::string& dtype, std::vector<std::int64_t> shape,
           int element_bytes);
  void write(const std::filesystem::path& path) const;
};
EditableFile read_editable(const std::filesystem::path& path);

// Copies a golden's config and weights to another folder.
void copy_checkpoint(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace tessera::test
