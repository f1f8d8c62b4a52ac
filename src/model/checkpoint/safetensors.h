// The safetensors format: eight bytes of header length, a JSON header, tensors one after the other.
//
//   +--------+----------------------------------------------+---------+---------+-----
//   | u64 n  | {"name": {"dtype", "shape", "data_offsets"}} | tensor  | tensor  | ...
//   +--------+----------------------------------------------+---------+---------+-----
//     8 bytes  n bytes, at most 100 MB                        contiguous, complete, no overlap
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/tensor.h"

namespace tessera::model {

inline constexpr std::int64_t kMaxSafetensorsHeader = 100'000'000;  // bytes; the format's own limit
inline constexpr std::int64_t kMaxSafetensorsTensors = 1'000'000;   // far beyond any model

class AlignedCopy;  // model/checkpoint/aligned_copy.h

// A tensor of a file: a view of mapped memory.
struct StoredTensor {
  std::string name;
  std::string dtype;  // as the file spells it: "F32", "BF16", "F8_E4M3", ...
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
  std::shared_ptr<AlignedCopy> copy{};  // for tensor(), if data is not aligned

  // A view on the CPU. Refuses, by name, dtypes that Tessera does not have. F8_E8M0 becomes u8, and
  // a scalar becomes [1]. The memory is read-only. Data that is not aligned to its elements is
  // copied on the first call; without `copy` it is refused. Tensors of a Checkpoint have one.
  Tensor tensor() const;
};
// Whether the data starts at a multiple of its element's size. Most writers pad the header for
// that, but the format does not require it.
bool is_aligned(const StoredTensor& tensor);
// "model.norm.weight F32[64]"
std::string to_string(const StoredTensor& tensor);

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // in order of their data
  std::map<std::string, std::string> metadata;
};
// Checks everything; `where` names the file in errors.
SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& where);

// A tensor to write: `data` is on the CPU, contiguous, and stays alive until the call returns.
struct TensorToWrite {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
};
using WriteProgress = std::function<void(std::int64_t bytes_done, std::int64_t bytes_in_all)>;

// Writes a file tensor by tensor, for callers that cannot hold all of them at once. The file has
// another name until commit() renames it: a failure (no space left) leaves no file, and is
// reported.
class SafetensorsWriter {
 public:
  // Names, dtypes and shapes of all tensors; their data is not read.
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorToWrite>& tensors,
                    const std::map<std::string, std::string>& metadata,
                    WriteProgress progress = {});
  ~SafetensorsWriter();

  // The whole data of one tensor; in any order, each once.
  void write(std::string_view name, std::span<const std::byte> data);
  // Throws if a tensor has not been written.
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// All at once.
void write_safetensors(const std::filesystem::path& path, const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata,
                       const WriteProgress& progress = {});

}  // namespace tessera::model
