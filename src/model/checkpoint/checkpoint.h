// A folder with config.json and model.safetensors, or model.safetensors.index.json and its shards.
// Files of weights are mapped or copied, and stay so as long as the Checkpoint lives. A tensor that
// a file stores unaligned is copied at its first use, and the copy lives as long.
//
// Threads: a Checkpoint never changes, and any number may use it at the same time.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/checkpoint/json.h"
#include "model/checkpoint/safetensors.h"
#include "tessera/model.h"

namespace tessera::model {

class WeightsFile;  // model/checkpoint/weights_file.h

class Checkpoint {
 public:
  // Throws one sentence for a missing folder, a folder without config.json, a missing shard, a
  // tensor in two shards or in none, an index that names a file outside of the folder.
  static std::shared_ptr<const Checkpoint> open(const std::filesystem::path& directory,
                                                FileAccess access = FileAccess::map);
  ~Checkpoint();

  const std::filesystem::path& directory() const { return directory_; }
  const Json& config() const { return config_; }                    // config.json
  const Json& hf_quant_config() const { return hf_quant_config_; }  // null if there is none
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;  // null if there is none
  // Throws if there is none; the message has its name and the folder.
  const StoredTensor& at(std::string_view name) const;
  // Throws Error (file) if someone has written to a mapped file since it was opened.
  void check_unchanged() const;
  // Whether the tensor lies in a mapped file. In a copied one it is memory of this process.
  bool is_mapped(const StoredTensor& tensor) const;

 private:
  Checkpoint();
  void open_shards(const std::filesystem::path& index);
  void add_file(const std::filesystem::path& file);
  void align_tensors();
  void index_names();

  std::filesystem::path directory_;
  Json config_, hf_quant_config_;
  FileAccess access_ = FileAccess::map;
  std::vector<std::unique_ptr<WeightsFile>> files_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> by_name_;  // views into tensors_
};

}  // namespace tessera::model
