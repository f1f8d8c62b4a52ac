#include "support/program.h"

#include <fcntl.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <regex>
#include <stdexcept>

#include "support/files.h"

namespace tessera::test {
namespace {

int status_of(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

std::string in_quotes(const std::filesystem::path& path) {
  std::string text = "'";
  return text.append(path.string()).append("'");
}

}  // namespace

ProgramRun run_program(const std::string& program, const std::string& arguments,
                       const std::string& input) {
  const TemporaryFolder folder;
  const auto in = folder.path() / "in", out = folder.path() / "out", err = folder.path() / "err";
  write_text(in, input);
  const std::string command = in_quotes(program) + " " + arguments + " <" + in_quotes(in) + " >" +
                              in_quotes(out) + " 2>" + in_quotes(err);
  const int status = std::system(command.c_str());
  return {status_of(status), read_text(out), read_text(err)};
}

ProgramRun interrupt_program(const std::string& program, const std::string& arguments) {
  const TemporaryFolder folder;
  const auto err = folder.path() / "err";
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) throw std::runtime_error("cannot make a pipe");
  // With exec, the shell becomes the program, so the signal reaches it.
  const std::string command =
      "exec " + in_quotes(program) + " " + arguments + " 2>" + in_quotes(err) + " </dev/null";
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  ::close(ends[1]);
  ProgramRun outcome{-1, {}, {}};
  std::array<char, 4096> chunk{};
  bool sent = false;
  for (ssize_t n = 0; (n = read(ends[0], chunk.data(), chunk.size())) > 0;) {
    outcome.out.append(chunk.data(), static_cast<std::size_t>(n));
    if (!sent) kill(child, SIGINT);
    sent = true;
  }
  ::close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  outcome.status = status_of(status);
  outcome.err = read_text(err);
  return outcome;
}

ProgramRun interrupt_on_terminal(const std::string& program, const std::string& arguments,
                                 const std::string& expression) {
  const std::string command = "exec " + in_quotes(program) + " " + arguments;
  const std::regex wanted(expression);
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child < 0) throw std::runtime_error("cannot make a terminal");
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  ProgramRun outcome{-1, {}, {}};
  std::array<char, 4096> chunk{};
  bool sent = false;
  for (ssize_t n = 0; (n = read(terminal, chunk.data(), chunk.size())) > 0;) {
    outcome.out.append(chunk.data(), static_cast<std::size_t>(n));
    if (sent || !std::regex_search(outcome.out, wanted)) continue;
    kill(child, SIGINT);
    sent = true;
  }
  ::close(terminal);
  int status = 0;
  waitpid(child, &status, 0);
  outcome.status = status_of(status);
  return outcome;
}

}  // namespace tessera::test
