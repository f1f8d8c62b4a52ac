// The folder that a new checkpoint is written to. Everything is written to a staging folder inside
// it first, and commit() moves it to its place: a failure at any time before leaves what was there
// as it was, and no folder that looks like a model where there was none.
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
  // `from` is the checkpoint that the new one is made of. Refuses the same folder, one that holds
  // files (unless `force`), one that another run writes to, and a disk with less than `bytes` free.
  OutputFolder(std::filesystem::path path, std::filesystem::path from, bool force,
               std::int64_t bytes);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  // Where files are to be written.
  std::filesystem::path new_files() const { return stage_->new_files(); }
  void write(const std::string& name, std::string_view text);
  // Everything of `from` that is neither weights nor config.json: tokenizer,
  // generation_config.json, licence, model card.
  void copy_others();
  // Moves the new files to their place. Weights of a model that was there go, and so does the file
  // that says how they were packed; other files stay.
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
