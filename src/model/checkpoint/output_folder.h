// The folder that a new checkpoint is written to. Everything is written to a staging folder inside
// it first, and commit() moves it to its place. A failure before that leaves older files as they
// were, and never a folder that only looks like a model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/checkpoint/staging_folder.h"

namespace tessera::model {

class OutputFolder {
 public:
  // `from` is the checkpoint that the new one is made from. Refuses the same folder, one that holds
  // files (unless `force`), one that another run writes to, and a disk with less than `bytes` free.
  OutputFolder(std::filesystem::path path, std::filesystem::path from, bool force,
               std::int64_t bytes);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  // The folder to write files to.
  std::filesystem::path new_files() const { return stage_->new_files(); }
  void write(const std::string& name, std::string_view text);
  // Everything of `from` that is neither weights nor config.json: tokenizer,
  // generation_config.json, licence, model card.
  void copy_others();
  // Moves the new files to their place. Removes the weights of an older model and the file that
  // says how they were packed; other files stay.
  void commit();

 private:
  void check_place(bool force);
  void create();
  void remove_created() const;
  std::vector<std::string> old_model() const;

  std::filesystem::path path_, from_;
  bool committed_ = false;
  std::vector<std::filesystem::path> created_;  // folders, the innermost first
  std::optional<StagingFolder> stage_;
};

}  // namespace tessera::model
