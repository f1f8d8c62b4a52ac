// tessera bench as a user runs it: forms of output, and comparison with an earlier run.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "program.h"
#include "support/files.h"

namespace tessera::test {
namespace {

using Json = nlohmann::json;

Outcome bench(const std::string& arguments) {
  return run("bench --device cpu --threads 2 --quick " + arguments);
}

std::string decode_tiny() {
  return "decode --model " + data_path("goldens/llama-gqa").string() + " ";
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Bench, DecodeHasTheColumnsOfLlamaBench) {
  const Outcome outcome = bench(decode_tiny() + "--md");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_TRUE(has(outcome.output, "| model ")) << outcome.output;
  for (const char* word : {"size", "params", "device", "test", "t/s", "pp512", "tg128", "±"}) {
    EXPECT_TRUE(has(outcome.output, word)) << word << "\n" << outcome.output;
  }
}

TEST(Bench, OpsHaveTimeAndFloor) {
  const Outcome outcome = bench("norm --json");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const Json json = Json::parse(outcome.output);
  const std::string commit = json["about"]["commit"];  // without git "unknown"
  EXPECT_GE(commit.size(), 7u) << commit;
  EXPECT_GT(json["ceilings"]["read_bandwidth"], 0);
  EXPECT_GT(json["ceilings"]["f32_rate"], 0);
  ASSERT_EQ(json["ops"].size(), 8u);
  for (const Json& op : json["ops"]) {
    EXPECT_GT(op["ms"], 0);
    EXPECT_LE(op["fastest_ms"], op["ms"]);
    EXPECT_GE(op["slowest_ms"], op["ms"]);
    EXPECT_GT(op["floor_ms"], 0);
    EXPECT_GT(op["bytes"], 0);
  }
  EXPECT_TRUE(json["models"].empty());
}

TEST(Bench, CsvHasALineForEachTest) {
  const Outcome outcome = bench("norm --csv");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1 + 8);
  EXPECT_TRUE(outcome.output.starts_with("kind,test,kernel,ms,")) << outcome.output;
}

// A run that took no time at all before is slower now; one that took for ever is faster.
TEST(Bench, CompareExitsWithOneBeyondTheGivenRegression) {
  TemporaryFolder folder;
  const std::string file = (folder.path() / "before.json").string();
  Json before = Json::parse(bench(decode_tiny() + "--json").output);
  const auto with_factor = [&](double factor) {
    Json changed = before;
    for (Json& model : changed["models"]) {
      model["tokens_per_second"] = factor * model["tokens_per_second"].get<double>();
    }
    write(file, changed.dump());
  };
  with_factor(1e4);
  const Outcome slower = bench(decode_tiny() + "--compare " + file);
  EXPECT_EQ(slower.status, 1) << slower.output;
  EXPECT_TRUE(has(slower.output, "REGRESSION")) << slower.output;
  EXPECT_TRUE(has(slower.output, "2 of 2 tests are more than 10% slower")) << slower.output;
  with_factor(1e-4);
  const Outcome faster = bench(decode_tiny() + "--json --compare " + file);
  EXPECT_EQ(faster.status, 0) << faster.output;
  const Json compared = Json::parse(faster.output).at("compare");
  EXPECT_EQ(compared["regressions"], 0);
  EXPECT_GT(compared["tests"][0]["speed"], 5);
  with_factor(1e4);  // allowed, if so much may be lost
  EXPECT_EQ(bench(decode_tiny() + "--max-regression 1000 --compare " + file).status, 0);
}

TEST(Bench, RefusesWhatItCannotCompareOrPrint) {
  TemporaryFolder folder;
  const auto path = [&](const char* name) { return (folder.path() / name).string(); };
  write(path("no.json"), "{\"ops\": 3}");
  write(path("other.json"), "{\"ops\": [], \"models\": []}");
  write(path("peers.json"), "{\"peers\": [{\"name\": \"x\", \"test\": \"tg128\"}]}");
  const Outcome missing = bench("norm --compare " + path("missing.json"));
  EXPECT_EQ(missing.status, 1);
  EXPECT_TRUE(has(missing.output, "there is no file")) << missing.output;
  // These were waited for without end, or answered with the words of the standard library.
  ASSERT_EQ(mkfifo(path("pipe.html").c_str(), 0600), 0);
  for (const std::string& arguments :
       {"norm --compare " + path("pipe.html"),
        "norm --html " + path("page.html") + " --peers " + path("pipe.html")}) {
    const Outcome pipe = bench(arguments);
    EXPECT_EQ(pipe.status, 1);
    EXPECT_TRUE(has(pipe.output, "is a pipe or a device")) << pipe.output;
  }
  const Outcome into_pipe = bench("norm --html " + path("pipe.html"));
  EXPECT_EQ(into_pipe.status, 2);
  EXPECT_TRUE(has(into_pipe.output, "a pipe or a device; give the name of a file"))
      << into_pipe.output;
  const Outcome of_folder = bench("norm --compare " + folder.path().string());
  EXPECT_EQ(of_folder.status, 1);
  EXPECT_TRUE(has(of_folder.output, "is a folder; a file is needed here")) << of_folder.output;
  const Outcome wrong = bench("norm --compare " + path("no.json"));
  EXPECT_EQ(wrong.status, 1);
  EXPECT_TRUE(has(wrong.output, "is not what tessera bench --json prints")) << wrong.output;
  const Outcome other = bench("norm --compare " + path("other.json"));
  EXPECT_EQ(other.status, 1);
  EXPECT_TRUE(has(other.output, "has no test of this run")) << other.output;
  const Outcome peers =
      bench("norm --html " + path("page.html") + " --peers " + path("peers.json"));
  EXPECT_EQ(peers.status, 1);
  EXPECT_TRUE(has(peers.output, "has neither tokens_per_second nor ms")) << peers.output;
  EXPECT_EQ(bench("norm --json --csv").status, 2);
  EXPECT_EQ(bench("norm --peers " + path("peers.json")).status, 2);
  EXPECT_EQ(bench("everything").status, 2);
}

}  // namespace
}  // namespace tessera::test
