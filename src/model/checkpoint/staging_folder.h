// Where the files of a new checkpoint are written, until all of them are moved to their place
// together: a hidden folder inside the target folder, so that moving is renaming.
//
//   OUT/.tessera-partial-PID-N/new/   the new files
//                             /old/   the files that they replace, while files are moved
//                             /swap   the names of the new files, while files are moved
//
// A run that is killed leaves the folder, and the next run cleans up: it undoes a move that was not
// finished, then removes the rest. A live run holds a lock on the folder, which the system releases
// when the run ends for any reason.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tessera::model {

// Removes what killed runs have left in the folder. Throws Error (file) if another run is using it.
void clean_up_staging(const std::filesystem::path& folder);

class StagingFolder {
 public:
  explicit StagingFolder(std::filesystem::path folder);
  // Removes the files that were not moved and those that were replaced.
  ~StagingFolder();
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;

  std::filesystem::path new_files() const;  // a folder to write to
  // Moves the new files to their place, over those of the same name, and removes `obsolete` files
  // of the folder. On a failure everything is restored.
  void swap_in(const std::vector<std::string>& obsolete);

 private:
  std::filesystem::path folder_, stage_;
  int lock_ = -1;
};

}  // namespace tessera::model
