#include "model/checkpoint/staging_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/fail.h"
#include "model/checkpoint/atomic_file.h"
#include "model/checkpoint/input_file.h"

namespace tessera::model {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = ".tessera-partial-";
constexpr std::int64_t kMaxJournal = 10'000'000;  // names of the files of one folder

[[noreturn]] void fail_staging(const char* what, const fs::path& path,
                               const std::error_code& error) {
  fail(ErrorCode::file, "cannot {} {}: {}", what, path.string(), error.message());
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) fail_staging("read", folder, error);
  std::sort(names.begin(), names.end());
  return names;
}

bool is_at(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

void move_file(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) fail_staging("write", to, error);
}

// The folder, open and locked; -1 if another run has locked it. On a file system without locks, it
// counts as not locked.
int lock_folder(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) fail_staging("open", path, {errno, std::generic_category()});
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return fd;
  ::close(fd);
  return -1;
}

// The names are separated by zeros, which no name contains.
void write_journal(const fs::path& path, const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text.append(name).push_back('\0');
  AtomicFile file(path, static_cast<std::int64_t>(text.size()));
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

std::vector<std::string> read_journal(const fs::path& path) {
  const std::string text = read_small_file(path, kMaxJournal);
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\0', begin), text.size());
    std::string name = text.substr(begin, end - begin);
    // The folder may come from someone else: a name must not lead out of it.
    if (fs::path(name).filename() == name) names.push_back(std::move(name));
    begin = end + 1;
  }
  return names;
}

// Undoes swap_in(), wherever it stopped.
void undo_swap(const fs::path& folder, const fs::path& stage) {
  if (!is_at(stage / "swap")) return;
  for (const std::string& name : read_journal(stage / "swap")) {
    const bool was_moved = !is_at(stage / "new" / name);
    if (was_moved && is_at(folder / name)) move_file(folder / name, stage / "new" / name);
  }
  for (const std::string& name : names_in(stage / "old")) {
    move_file(stage / "old" / name, folder / name);
  }
  sync_folder(folder);
  fs::remove(stage / "swap");
}

}  // namespace

void clean_up_staging(const fs::path& folder) {
  for (const std::string& name : names_in(folder)) {
    std::error_code ignored;
    const bool is_stage =
        name.starts_with(kPrefix) && fs::is_directory(fs::symlink_status(folder / name, ignored));
    if (!is_stage) continue;
    const int lock = lock_folder(folder / name);
    if (lock < 0) {
      fail(ErrorCode::file, "another run is writing to {}; wait for it, or choose another folder",
           folder.string());
    }
    try {
      undo_swap(folder, folder / name);
      fs::remove_all(folder / name);
    } catch (...) {
      ::close(lock);
      throw;
    }
    ::close(lock);
  }
}

StagingFolder::StagingFolder(fs::path folder) : folder_(std::move(folder)) {
  // The process's number separates programs, the counter separates folders of one program.
  for (int attempt = 0;; ++attempt) {
    stage_ = folder_ / fmt::format("{}{}-{}", kPrefix, ::getpid(), attempt);
    if (::mkdir(stage_.c_str(), 0777) == 0) break;
    if (errno != EEXIST) fail_staging("write to", folder_, {errno, std::generic_category()});
  }
  lock_ = lock_folder(stage_);
  std::error_code error;
  for (const char* part : {"new", "old"}) {
    if (!error) fs::create_directory(stage_ / part, error);
  }
  if (!error) return;
  if (lock_ >= 0) ::close(lock_);
  std::error_code ignored;
  fs::remove_all(stage_, ignored);
  fail_staging("write to", folder_, error);
}

StagingFolder::~StagingFolder() {
  std::error_code ignored;
  // If a move could not be undone, the replaced files must stay: the next run tries again.
  if (!is_at(stage_ / "swap")) fs::remove_all(stage_, ignored);
  if (lock_ >= 0) ::close(lock_);
}

fs::path StagingFolder::new_files() const { return stage_ / "new"; }

void StagingFolder::swap_in(const std::vector<std::string>& obsolete) {
  std::vector<std::string> names = names_in(new_files());
  // A folder is a model as soon as it has config.json: that file is added last and removed first.
  const auto is_config = [](const std::string& name) { return name == "config.json"; };
  std::stable_partition(names.begin(), names.end(), std::not_fn(is_config));
  std::vector<std::string> leaving = obsolete;
  for (const std::string& name : names) {
    if (!is_at(folder_ / name)) continue;
    std::error_code ignored;
    if (fs::is_directory(fs::symlink_status(folder_ / name, ignored))) {
      fail(ErrorCode::file, "cannot write {}: it is a folder", (folder_ / name).string());
    }
    leaving.push_back(name);
  }
  std::stable_partition(leaving.begin(), leaving.end(), is_config);
  sync_folder(new_files());
  write_journal(stage_ / "swap", names);
  try {
    for (const std::string& name : leaving) move_file(folder_ / name, stage_ / "old" / name);
    for (const std::string& name : names) move_file(new_files() / name, folder_ / name);
    sync_folder(folder_);
    fs::remove(stage_ / "swap");  // from here on it is done
  } catch (...) {
    undo_swap(folder_, stage_);
    throw;
  }
}

}  // namespace tessera::model
