// Where the files of a new checkpoint are made, until all of them are moved to their place
// together: a hidden folder inside the one they are for, so that moving is renaming.
//
//   OUT/.tessera-partial-PID-N/new/   what is being made
//                             /old/   what it replaces, while files are moved
//                             /swap   the names of the new files, while files are moved
//
// A run that is killed leaves it behind, and the next run cleans up: it undoes a move that was not
// finished, then removes the rest. The living hold a lock on it, which the system releases when
// they die, however they do.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tessera::model {

// Removes what dead runs have left in the folder. Throws Error (file) if another run is at work
// there.
void clean_up_staging(const std::filesystem::path& folder);

class StagingFolder {
 public:
  explicit StagingFolder(std::filesystem::path folder);
  // Removes all that was not moved, and what was replaced.
  ~StagingFolder();
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;

  std::filesystem::path new_files() const;  // a folder to write to
  // Moves the new files to their place, over those of the same name; `obsolete` files of the
  // folder go. On a failure everything is again as it was.
  void swap_in(const std::vector<std::string>& obsolete);

 private:
  std::filesystem::path folder_, stage_;
  int lock_ = -1;
};

}  // namespace tessera::model
