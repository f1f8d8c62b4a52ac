// The folder that a new checkpoint is written to. What was written is removed again unless keep()
// is called: a failure half-way leaves no folder that looks like a model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::model {

class OutputFolder {
 public:
  // `from` is the checkpoint that the new one is made of. Refuses the same folder, one that holds
  // files (unless `force`), and a disk with less than `bytes` free.
  OutputFolder(std::filesystem::path path, std::filesystem::path from, bool force,
               std::int64_t bytes);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Records a file that someone else has written.
  void wrote(const std::string& name) { written_.push_back(path_ / name); }
  void write(const std::string& name, std::string_view text);
  // With `force`, once ours is written: removes other weights of the model that was there, and the
  // file that says how they were packed.
  void remove_old_model() const;
  // Everything of `from` that is neither weights nor config.json: tokenizer,
  // generation_config.json, licence, model card.
  void copy_others();
  void keep() { keep_ = true; }

 private:
  void create();
  void remove_all() const;

  std::filesystem::path path_, from_;
  bool keep_ = false;
  std::vector<std::filesystem::path> created_;  // folders, the innermost first
  std::vector<std::filesystem::path> written_;
};

}  // namespace tessera::model
