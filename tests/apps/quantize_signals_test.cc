// tessera quantize that is stopped from outside: it leaves nothing that blocks the next run.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

#include "support/files.h"
#include "support/program.h"

namespace tessera::test {
namespace {

namespace fs = std::filesystem;

class StoppedQuantize : public testing::Test {
 protected:
  std::string arguments() const {
    return "quantize --threads 1 --format nvfp4 --model " +
           data_path("goldens/neox-serial-untied").string() + " --out " + out_.string();
  }
  // Starts the program, waits until it has begun to write, and sends it the signal. Returns the
  // status that waitpid() gives.
  int run_and_send(int signal) const {
    const pid_t child = fork();
    if (child == 0) {
      for (const int each : {SIGINT, SIGTERM, SIGHUP}) std::signal(each, SIG_DFL);
      const int log = open((folder_.path() / "log").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
      dup2(log, STDOUT_FILENO);
      dup2(log, STDERR_FILENO);
      const std::string command = std::string("exec ") + TESSERA_PROGRAM + ' ' + arguments();
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    int status = 0;
    while (!fs::exists(out_) || fs::is_empty(out_)) {
      if (waitpid(child, &status, WNOHANG) == child) return status;
    }
    kill(child, signal);
    waitpid(child, &status, 0);
    return status;
  }
  // The signal may come too late, when all is written: then once more.
  int stopped_by(int signal) const {
    for (int attempt = 0; attempt < 100; ++attempt) {
      const int status = run_and_send(signal);
      if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return status;
      fs::remove_all(out_);
    }
    ADD_FAILURE() << "the signal always came too late";
    return 0;
  }

  TemporaryFolder folder_;
  const fs::path out_ = folder_.path() / "out";
};

TEST_F(StoppedQuantize, CleansUpWhenItIsAskedToEnd) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const int status = stopped_by(signal);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 128 + signal);
    EXPECT_EQ(read_text(folder_.path() / "log"),
              "tessera: stopped; " + out_.string() + " was not written\n");
    EXPECT_FALSE(fs::exists(out_));
  }
}

TEST_F(StoppedQuantize, LeavesNothingThatBlocksTheNextRunWhenItIsKilled) {
  const int status = stopped_by(SIGKILL);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(fs::is_empty(out_));
  const ProgramRun next = run_program(TESSERA_PROGRAM, arguments());
  EXPECT_EQ(next.status, 0) << next.err;
  for (const auto& entry : fs::directory_iterator(out_)) {
    EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
  }
}

TEST_F(StoppedQuantize, SaysWhenAFileWouldBeTooLarge) {
  const ProgramRun outcome =
      run_program("/bin/sh", "-c 'ulimit -f 16; \"$0\" " + arguments() + "' " + TESSERA_PROGRAM);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("model.safetensors: File too large after "), std::string::npos)
      << outcome.err;
  EXPECT_FALSE(fs::exists(out_));
}

}  // namespace
}  // namespace tessera::test
