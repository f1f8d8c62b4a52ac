// Small files that are read whole, and what is refused before it can block or fill the memory.
#include "model/checkpoint/input_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "model/checkpoint/json.h"
#include "support/files.h"
#include "support/refusal.h"

namespace tessera::test {
namespace {

namespace fs = std::filesystem;
using model::InputFile;
using model::is_named;
using model::read_file_start;
using model::read_small_file;

class InputFiles : public testing::Test {
 protected:
  fs::path path(const std::string& name) const { return folder_.path() / name; }

  TemporaryFolder folder_;
};

TEST_F(InputFiles, AreReadWhole) {
  std::string text(200'000, 'x');
  text[123'456] = '\0';
  write_text(path("long"), text);
  write_text(path("empty"), "");
  EXPECT_EQ(read_small_file(path("long"), 200'000), text);
  EXPECT_EQ(read_small_file(path("empty"), 0), "");
  EXPECT_EQ(read_file_start(path("long"), 10), "xxxxxxxxxx");
  EXPECT_EQ(read_file_start(path("long"), 1'000'000), text);
}

TEST_F(InputFiles, OfOtherKindsAreRefused) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  fs::create_symlink(path("loop"), path("loop"));
  write_text(path("long"), "four");
  const auto refused = [&](const fs::path& file, const std::string& text) {
    EXPECT_TRUE(refuses([&] { read_small_file(file, 3); }, text, ErrorCode::file));
  };
  const std::string regular = " is a pipe or a device; a regular file is needed here";
  refused(path("pipe"), path("pipe").string() + regular);
  refused("/dev/zero", "/dev/zero" + regular);
  refused(folder_.path(), folder_.path().string() + " is a folder; a file is needed here");
  refused(path("none"), "there is no file " + path("none").string());
  refused(path("loop"),
          "cannot open " + path("loop").string() + ": Too many levels of symbolic links");
  refused(path("long"), path("long").string() + " has 4 bytes; such a file has at most 3");
}

// Files of /proc say that they have no bytes.
TEST_F(InputFiles, WhoseSizeIsNotTrueAreReadToTheirEnd) {
  const fs::path file = "/proc/sys/kernel/pid_max";
  if (!fs::exists(file)) GTEST_SKIP() << missing(file);
  EXPECT_FALSE(read_small_file(file, 100).empty());
  EXPECT_TRUE(model::read_json_file(file, 100).is_number());  // a mapped file would look empty
  EXPECT_TRUE(refuses([&] { read_small_file(file, 1); },
                      file.string() + " has 2 bytes; such a file has at most 1", ErrorCode::file));
}

TEST_F(InputFiles, TellWhetherSomeoneHasWrittenToThem) {
  write_text(path("file"), "as it was");
  const InputFile file(path("file"));
  EXPECT_FALSE(file.has_changed());
  write_text(path("new"), "another");
  fs::rename(path("new"), path("file"));  // the open file is the old one still
  EXPECT_FALSE(file.has_changed());

  const InputFile grows(path("file"));
  std::ofstream(path("file"), std::ios::app) << "more";
  EXPECT_TRUE(grows.has_changed());
  const InputFile touched(path("file"));
  fs::last_write_time(path("file"), fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_TRUE(touched.has_changed());
}

TEST_F(InputFiles, AreNamedUnlessThereIsNothing) {
  write_text(path("file"), "");
  fs::create_symlink(path("none"), path("dangling"));
  fs::create_symlink(path("loop"), path("loop"));
  EXPECT_TRUE(is_named(path("file")));
  EXPECT_TRUE(is_named(path("loop")));
  EXPECT_FALSE(is_named(path("dangling")));
  EXPECT_FALSE(is_named(path("none")));
}

}  // namespace
}  // namespace tessera::test
