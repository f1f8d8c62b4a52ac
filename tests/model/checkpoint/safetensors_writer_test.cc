#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "model/checkpoint/safetensors.h"
#include "support/files.h"
#include "support/refusal.h"
#include "support/safetensors_file.h"

namespace tessera::model {
namespace {

namespace fs = std::filesystem;
using test::bytes_of;
using test::refuses;

TensorToWrite to_write(std::string name, std::string dtype, std::vector<std::int64_t> shape,
                       std::string_view data) {
  return {std::move(name), std::move(dtype), std::move(shape), bytes_of(data)};
}

class SafetensorsWriterTest : public testing::Test {
 protected:
  fs::path path(const char* name = "w.safetensors") const { return folder_.path() / name; }
  std::size_t files_left() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()));
  }
  const test::TemporaryFolder folder_;
};

TEST_F(SafetensorsWriterTest, WritesWhatTheReaderReads) {
  write_safetensors(
      path(),
      {to_write("byte\n\"", "U8", {3}, "abc"), to_write("none", "F16", {0, 5}, ""),
       to_write("scalar", "F32", {}, "1234"), to_write("wide", "I64", {1, 1}, "01234567")},
      {{"format", "pt"}, {"é", "ü"}});
  const std::string text = test::read_text(path());
  const SafetensorsHeader header = parse_safetensors(bytes_of(text), "w");
  ASSERT_EQ(header.tensors.size(), 4U);
  // The widest tensor comes first. All are aligned, though the byte tensor has an odd length and
  // was given first.
  EXPECT_EQ(to_string(header.tensors[0]), "wide I64[1, 1]");
  EXPECT_EQ(to_string(header.tensors[1]), "scalar F32[]");
  EXPECT_EQ(to_string(header.tensors[2]), "none F16[0, 5]");
  EXPECT_EQ(to_string(header.tensors[3]), "byte\\x0a\" U8[3]");
  const auto offset = [&](std::size_t i) {
    return header.tensors[i].data.data() - bytes_of(text).data();
  };
  EXPECT_EQ(offset(0) % 8, 0);
  EXPECT_EQ(offset(1) % 4, 0);
  EXPECT_TRUE(std::equal(header.tensors[3].data.begin(), header.tensors[3].data.end(),
                         bytes_of("abc").begin()));
  EXPECT_EQ(header.metadata, (std::map<std::string, std::string>{{"format", "pt"}, {"é", "ü"}}));
}

TEST_F(SafetensorsWriterTest, TakesTensorsOneByOneInAnyOrder) {
  const std::vector<TensorToWrite> all = {to_write("a", "U8", {3}, "abc"),
                                          to_write("b", "F32", {2}, "12345678"),
                                          to_write("c", "F16", {1}, "xy")};
  write_safetensors(path("at_once"), all, {{"format", "pt"}});
  SafetensorsWriter writer(path(), all, {{"format", "pt"}});
  for (const std::size_t i : {1u, 2u, 0u}) writer.write(all[i].name, all[i].data);
  EXPECT_FALSE(fs::exists(path()));
  writer.commit();
  EXPECT_EQ(test::read_text(path()), test::read_text(path("at_once")));
}

TEST_F(SafetensorsWriterTest, TensorsThatWereNotAnnouncedOrAreMissingAreRefused) {
  const auto a = to_write("a", "U8", {3}, "abc");
  {
    SafetensorsWriter writer(path(), {a, to_write("b", "U8", {1}, "")}, {});
    EXPECT_TRUE(refuses([&] { writer.write("c", a.data); }, "tensor \"c\" was not announced"));
    EXPECT_TRUE(refuses([&] { writer.write("b", a.data); },
                        "tensor \"b\": U8[1] needs 1 bytes, 3 are given"));
    writer.write("a", a.data);
    EXPECT_TRUE(refuses([&] { writer.write("a", a.data); }, "tensor \"a\" was written before"));
    EXPECT_TRUE(refuses([&] { writer.commit(); }, "tensor \"b\" was announced and not written"));
  }
  EXPECT_EQ(files_left(), 0U);
}

TEST_F(SafetensorsWriterTest, WritesAFileWithoutTensors) {
  write_safetensors(path(), {}, {});
  EXPECT_TRUE(parse_safetensors(bytes_of(test::read_text(path())), "w").tensors.empty());
  EXPECT_EQ(files_left(), 1U);
}

TEST_F(SafetensorsWriterTest, ReportsProgressUpToTheEnd) {
  const std::string data(40 << 20, 'x');
  std::vector<std::pair<std::int64_t, std::int64_t>> calls;
  write_safetensors(path(), {to_write("x", "U8", {40 << 20}, data)}, {},
                    [&](std::int64_t done, std::int64_t all) { calls.emplace_back(done, all); });
  ASSERT_GE(calls.size(), 3U);
  EXPECT_TRUE(std::is_sorted(calls.begin(), calls.end()));
  EXPECT_EQ(calls.back().first, calls.back().second);
  EXPECT_EQ(std::uintmax_t(calls.back().second), fs::file_size(path()));
}

TEST_F(SafetensorsWriterTest, LeavesTheOldFileWhereWritingIsStopped) {
  test::write_text(path(), "old");
  const auto stop = [](std::int64_t, std::int64_t) { throw std::runtime_error("stop"); };
  EXPECT_THROW(write_safetensors(path(), {to_write("x", "U8", {1}, "x")}, {}, stop),
               std::runtime_error);
  EXPECT_EQ(test::read_text(path()), "old");
  EXPECT_EQ(files_left(), 1U);
  write_safetensors(path(), {to_write("x", "U8", {1}, "x")}, {});
  EXPECT_NE(test::read_text(path()), "old");
}

// A limit on file size stands in for a full disk. In both cases, write() fails half-way.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : old_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_limit_);
    const rlimit limit{bytes, old_limit_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_limit_);
    std::signal(SIGXFSZ, old_handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*old_handler_)(int);
  rlimit old_limit_{};
};

TEST_F(SafetensorsWriterTest, LeavesNothingBehindWhereThereIsNoRoom) {
  const std::string data(10'000, 'x');
  std::string message;
  {
    const FileSizeLimit limit(4096);
    try {
      write_safetensors(path(), {to_write("x", "U8", {10'000}, data)}, {});
    } catch (const Error& error) {
      message = error.what();
    }
  }
  EXPECT_EQ(message, "cannot write " + path().string() +
                         ": File too large after 4096 of 10072 bytes; the unfinished file was "
                         "removed");
  EXPECT_EQ(files_left(), 0U);
}

TEST_F(SafetensorsWriterTest, RefusesAPlaceThatCannotBeWritten) {
  const auto write = [&](const char* name) {
    return [this, name] { write_safetensors(path(name), {}, {}); };
  };
  EXPECT_TRUE(refuses(write("no/w"),
                      "cannot write " + path("no/w").string() + ": No such file or directory",
                      ErrorCode::file));
  fs::create_directory(path("folder"));
  EXPECT_TRUE(refuses(
      write("folder"),
      "cannot write " + path("folder").string() + ": it is a folder; give the name of a file",
      ErrorCode::file));
}

TEST_F(SafetensorsWriterTest, RefusesTensorsThatDoNotFitTheFormat) {
  const auto write = [&](std::vector<TensorToWrite> tensors) {
    return [this, tensors] { write_safetensors(path(), tensors, {}); };
  };
  EXPECT_TRUE(refuses(write({to_write("x", "F32", {2}, "1234")}),
                      "tensor \"x\": F32[2] needs 8 bytes, 4 are given"));
  EXPECT_TRUE(refuses(write({to_write("x", "f32", {1}, "1234")}),
                      "tensor \"x\": safetensors have no dtype \"f32\""));
  EXPECT_TRUE(refuses(write({to_write("x", "F4", {1}, "1")}),
                      "tensor \"x\": F4[1] needs 4 bits, which is not a whole number of bytes"));
  const std::string twice = "; names in a file are unique, and __metadata__ is taken";
  EXPECT_TRUE(refuses(write({to_write("x", "U8", {1}, "1"), to_write("x", "U8", {1}, "1")}),
                      "a second tensor \"x\" is given" + twice));
  EXPECT_TRUE(refuses(write({to_write("__metadata__", "U8", {1}, "1")}),
                      "a second tensor \"__metadata__\" is given" + twice));
  EXPECT_TRUE(refuses(write({to_write("\xff", "U8", {1}, "1")}),
                      "the name of a tensor or the metadata is not UTF-8"));
  EXPECT_EQ(files_left(), 0U);
}

}  // namespace
}  // namespace tessera::model
