// What a failed, a killed and a second run leave of a folder that a checkpoint is written to.
#include "model/checkpoint/staging_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "model/checkpoint/atomic_file.h"
#include "model/checkpoint/output_folder.h"
#include "support/files.h"
#include "support/refusal.h"

namespace {

std::atomic<int> g_synced_folders = 0;

}  // namespace

// In the place of libc's: counts folders.
extern "C" int fsync(int fd) {
  struct stat status {};
  if (fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) ++g_synced_folders;
  return static_cast<int>(syscall(SYS_fsync, fd));
}

namespace tessera::test {
namespace {

namespace fs = std::filesystem;
using model::clean_up_staging;
using model::OutputFolder;
using model::StagingFolder;

class Staging : public testing::Test {
 protected:
  Staging() { fs::create_directory(out_); }

  // Names and contents of all files, those of hidden folders as well.
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(out_)) {
      if (entry.is_regular_file()) {
        found[fs::relative(entry.path(), out_).string()] = read_text(entry.path());
      }
    }
    return found;
  }
  void write_old() const {
    write_text(out_ / "config.json", "old");
    write_text(out_ / "model-1.safetensors", "old");
    write_text(out_ / "notes", "mine");
  }
  static void write_new(const StagingFolder& stage) {
    write_text(stage.new_files() / "config.json", "new");
    write_text(stage.new_files() / "model.safetensors", "new");
  }
  // Runs a step in a process that is then killed.
  template <typename Step>
  static void in_killed_process(Step&& step) {
    EXPECT_EXIT(
        {
          step();
          raise(SIGKILL);
        },
        testing::KilledBySignal(SIGKILL), "");
  }

  TemporaryFolder parent_;
  const fs::path out_ = parent_.path() / "out";
  const std::map<std::string, std::string> old_ = {
      {"config.json", "old"}, {"model-1.safetensors", "old"}, {"notes", "mine"}};
  const std::map<std::string, std::string> new_ = {
      {"config.json", "new"}, {"model.safetensors", "new"}, {"notes", "mine"}};
};

TEST_F(Staging, NewFilesReplaceOldOnesTogether) {
  write_old();
  {
    StagingFolder stage(out_);
    write_new(stage);
    EXPECT_EQ(read_text(out_ / "config.json"), "old");
    stage.swap_in({"model-1.safetensors"});
  }
  EXPECT_EQ(files(), new_);
}

TEST_F(Staging, WhatIsNotMovedIsRemoved) {
  write_old();
  { write_new(StagingFolder(out_)); }
  EXPECT_EQ(files(), old_);
  EXPECT_EQ(std::distance(fs::directory_iterator(out_), {}), 3);
}

TEST_F(Staging, AMoveThatFailsHalfWayIsUndone) {
  write_old();
  {
    StagingFolder stage(out_);
    write_new(stage);
    EXPECT_TRUE(refuses(
        [&] {
          stage.swap_in({"model-1.safetensors", "gone"});
        },
        "cannot write " + (stage.new_files().parent_path() / "old/gone").string() +
            ": No such file or directory",
        ErrorCode::file));
  }
  EXPECT_EQ(files(), old_);
}

TEST_F(Staging, AFolderIsNeverReplacedByAFile) {
  write_old();
  fs::create_directory(out_ / "model.safetensors");
  write_text(out_ / "model.safetensors/mine", "mine");
  StagingFolder stage(out_);
  write_new(stage);
  EXPECT_TRUE(refuses([&] { stage.swap_in({}); },
                      "cannot write " + (out_ / "model.safetensors").string() + ": it is a folder",
                      ErrorCode::file));
  EXPECT_EQ(read_text(out_ / "model.safetensors/mine"), "mine");
  EXPECT_EQ(read_text(out_ / "config.json"), "old");
}

TEST_F(Staging, WhatAKilledRunLeftIsRemovedByTheNext) {
  in_killed_process([&] { write_new(*new StagingFolder(out_)); });
  EXPECT_FALSE(fs::is_empty(out_));
  clean_up_staging(out_);
  EXPECT_TRUE(fs::is_empty(out_));
}

// Killed after some files were moved: the folder is again as it was before that run.
TEST_F(Staging, AMoveThatAKillInterruptedIsUndoneByTheNext) {
  for (const bool had_model : {true, false}) {
    if (had_model) write_old();
    const auto before = files();
    in_killed_process([&] {
      StagingFolder& stage = *new StagingFolder(out_);
      write_new(stage);
      const fs::path top = stage.new_files().parent_path();
      // As swap_in() does it, but not to its end.
      std::ofstream(top / "swap") << "model.safetensors" << '\0' << "config.json" << '\0';
      if (had_model) fs::rename(out_ / "config.json", top / "old/config.json");
      fs::rename(stage.new_files() / "model.safetensors", out_ / "model.safetensors");
    });
    EXPECT_NE(files(), before);
    clean_up_staging(out_);
    EXPECT_EQ(files(), before);
    fs::remove_all(out_);
    fs::create_directory(out_);
  }
}

TEST_F(Staging, ALivingRunIsLeftAlone) {
  const StagingFolder living(out_);
  write_new(living);
  EXPECT_TRUE(refuses(
      [&] { clean_up_staging(out_); },
      "another run is writing to " + out_.string() + "; wait for it, or choose another folder",
      ErrorCode::file));
  EXPECT_EQ(read_text(living.new_files() / "config.json"), "new");
}

TEST_F(Staging, ARenameIsOnDiskWhenItsFolderIs) {
  g_synced_folders = 0;
  model::AtomicFile file(out_ / "file", 0);
  file.commit();
  EXPECT_EQ(g_synced_folders, 1);
  StagingFolder stage(out_);
  write_new(stage);
  g_synced_folders = 0;
  stage.swap_in({});
  EXPECT_EQ(g_synced_folders, 3);  // new files, the list of them, and the folder they are moved to
}

TEST_F(Staging, PlacesThatCannotBeWrittenAreRefusedAndLoseNothing) {
  const fs::path from = parent_.path() / "from", loop = parent_.path() / "loop",
                 dangling = parent_.path() / "dangling";
  fs::create_directory(from);
  fs::create_symlink(loop, loop);
  fs::create_symlink(parent_.path() / "none", dangling);
  const auto open = [&](const fs::path& path) {
    return [&, path] { OutputFolder(path, from, false, 0); };
  };
  EXPECT_TRUE(refuses(open(""), "the folder to write to has no name; give one"));
  EXPECT_TRUE(refuses(open(loop),
                      "cannot read " + loop.string() + ": Too many levels of symbolic links",
                      ErrorCode::file));
  EXPECT_THROW(open(dangling)(), Error);
  EXPECT_TRUE(fs::is_symlink(loop));  // they were removed as if they had been made
  EXPECT_TRUE(fs::is_symlink(dangling));
}

}  // namespace
}  // namespace tessera::test
