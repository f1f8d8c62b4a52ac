// tessera batch, where its files change under it: an input that is edited while it runs, and a disk
// that becomes full.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "support/model_folder.h"
#include "support/program.h"

namespace tessera::test {
namespace {

std::string request_named(const std::string& id) {
  return "{\"custom_id\": \"" + id + "\", \"prompt\": \"abc\"}\n";
}

class BatchFiles : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  std::string command(const std::string& options = "") const {
    return std::string("'") + TESSERA_PROGRAM +
           "' batch --device cpu --threads 1 --greedy --max-tokens 5 --ignore-eos" +
           model_.option() + options + " --input '" + path("in.jsonl") + "' --output '" +
           path("out.jsonl") + "'";
  }
  ProgramRun run_script(const std::string& script) const {
    write_text(path("script.sh"), script);
    const std::string file = path("script.sh");
    return run_program("/bin/sh", "'" + file + "'");
  }
  ProgramRun run() const { return run_script("exec " + command()); }

  // Runs it, and changes the input after the program has looked through it once, but before it
  // reads the requests: between the two it writes a note, into a pipe that is full until then.
  ProgramRun run_with_change(const std::string& change) const {
    return run_script(
        "cd '" + folder_.path().string() + "'; rm -f pipe; mkfifo pipe\n" +
        "exec 3<>pipe; head -c 65536 /dev/zero >&3\n" + command(" --context 5000") +
        " 2>&3 & pid=$!\n" + "until [ -e out.jsonl ]; do sleep 0.01; done\n" + change + "\n" +
        "tr -d '\\0' <pipe >&2 3>&- & exec 3>&-; wait $pid; status=$?; wait\n" + "exit $status\n");
  }

  // The ids of the results, sorted.
  std::string answered() const {
    std::vector<std::string> ids;
    std::istringstream in(read_text(path("out.jsonl")));
    for (std::string line; std::getline(in, line);) {
      const auto json = nlohmann::json::parse(line);
      EXPECT_TRUE(json.contains("text")) << line;
      ids.push_back(json["custom_id"].get<std::string>());
    }
    std::sort(ids.begin(), ids.end());
    std::string text;
    for (const std::string& id : ids) text += id + " ";
    return text;
  }

  const ModelFolder model_{"neox-serial-untied", TinyVocabulary::printable};
  TemporaryFolder folder_;
};

TEST_F(BatchFiles, LinesThatAreAppendedWaitForTheNextRun) {
  write_text(path("in.jsonl"), request_named("a") + request_named("b"));
  const ProgramRun first =
      run_with_change("printf '%s' '" + request_named("c") + request_named("a2") + "' >>in.jsonl");
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_NE(first.err.find("2 requests: 2 answered, 0 errors"), std::string::npos) << first.err;
  EXPECT_NE(first.err.find("the input has become longer; run the same command again"),
            std::string::npos)
      << first.err;
  EXPECT_EQ(answered(), "a b ");
  const ProgramRun second = run();
  EXPECT_EQ(second.status, 0) << second.err;
  EXPECT_EQ(answered(), "a a2 b c ");
}

TEST_F(BatchFiles, LinesThatChangeEndTheRunAndTheNextOneGoesOn) {
  const struct {
    std::string change, expected, ids;
  } cases[] = {
      {"printf '%s' '" + request_named("a") + request_named("x") + "' >in.jsonl",
       "line 2 of the input has changed while it was read; run the same command again", "a x "},
      {"printf '%s' '" + request_named("b") + request_named("a") + "' >in.jsonl",
       "line 1 of the input has changed while it was read; run the same command again", "a b "},
      {"printf '%s' '" + request_named("a") + "' >in.jsonl",
       "the input had 2 lines and now ends after 1", "a "},
      {"printf '\\n%s' '" + request_named("b") + "' >in.jsonl",
       "line 1 of the input has changed while it was read; run the same command again", "b "},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.change);
    std::filesystem::remove(path("out.jsonl"));
    write_text(path("in.jsonl"), request_named("a") + request_named("b"));
    const ProgramRun outcome = run_with_change(c.change);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_NE(outcome.err.find(c.expected), std::string::npos) << outcome.err;
    EXPECT_EQ(run().status, 0);
    EXPECT_EQ(answered(), c.ids);
  }
}

// The last line was being written, and is whole a moment later.
TEST_F(BatchFiles, ALineThatWasHalfWrittenIsNoBadLine) {
  write_text(path("in.jsonl"), request_named("a") + "{\"custom_id\": \"b\", ");
  const ProgramRun outcome = run_with_change("printf '%s\\n' '\"prompt\": \"abc\"}' >>in.jsonl");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("line 2 of the input has changed"), std::string::npos) << outcome.err;
  EXPECT_EQ(run().status, 0);
  EXPECT_EQ(answered(), "a b ");
}

TEST_F(BatchFiles, AnOutputThatCannotBeReadAgainIsRefused) {
  write_text(path("in.jsonl"), request_named("a"));
  const ProgramRun outcome =
      run_script("ln -s /dev/null '" + path("out.jsonl") + "'; exec " + command());
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("is not a regular file; another run reads the results again"),
            std::string::npos)
      << outcome.err;
}

TEST_F(BatchFiles, AFullDiskEndsTheRunAndTheNextOneGoesOn) {
  std::string requests;
  for (char c = 'a'; c <= 'm'; ++c) requests += request_named(std::string(1, c));
  write_text(path("in.jsonl"), requests);
  const ProgramRun outcome = run_script("ulimit -f 1; exec " + command());  // 512 bytes, or 1024
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("make room, and run the same command again to continue"),
            std::string::npos)
      << outcome.err;
  EXPECT_LE(read_text(path("out.jsonl")).size(), 1024u);
  EXPECT_EQ(run().status, 0);
  EXPECT_EQ(answered(), "a b c d e f g h i j k l m ");
}

}  // namespace
}  // namespace tessera::test
