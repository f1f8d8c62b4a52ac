#include "support/changed_checkpoint.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "model/checkpoint/mapped_file.h"
#include "model/checkpoint/safetensors.h"

namespace tessera::test {

EditableTensor& EditableFile::at(const std::string& name) {
  for (EditableTensor& tensor : tensors) {
    if (tensor.name == name) return tensor;
  }
  throw std::out_of_range(name);
}

void EditableFile::remove(const std::string& name) {
  std::erase_if(tensors, [&](const EditableTensor& tensor) { return tensor.name == name; });
}

void EditableFile::add(const std::string& name, const std::string& dtype,
                       std::vector<std::int64_t> shape, int element_bytes) {
  const std::int64_t count =
      std::accumulate(shape.begin(), shape.end(), std::int64_t{element_bytes}, std::multiplies<>());
  tensors.push_back(
      {name, dtype, std::move(shape), std::vector<std::byte>(static_cast<std::size_t>(count))});
}

void EditableFile::write(const std::filesystem::path& path) const {
  std::vector<model::TensorToWrite> list;
  for (const EditableTensor& tensor : tensors) {
    list.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.data});
  }
  model::write_safetensors(path, list, {});
}

EditableFile read_editable(const std::filesystem::path& path) {
  const model::MappedFile file(path);
  EditableFile result;
  for (const model::StoredTensor& stored :
       model::parse_safetensors(file.bytes(), path.string()).tensors) {
    result.tensors.push_back(
        {stored.name, stored.dtype, stored.shape, {stored.data.begin(), stored.data.end()}});
  }
  return result;
}

void copy_checkpoint(const std::filesystem::path& from, const std::filesystem::path& to) {
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::copy_file(from / name, to / name);
  }
}

}  // namespace tessera::test
