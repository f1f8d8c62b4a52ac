// Runs the program as a user does.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace tessera::test {

struct Outcome {
  int status;
  std::string output;  // standard output and standard error together
};

// `arguments` is what a user would type in a shell, redirections included.
inline Outcome run(const std::string& arguments) {
  FILE* pipe = popen((std::string(TESSERA_PROGRAM) + " " + arguments + " 2>&1").c_str(), "r");
  Outcome outcome{-1, {}};
  std::array<char, 4096> chunk;
  while (const std::size_t n = fread(chunk.data(), 1, chunk.size(), pipe)) {
    outcome.output.append(chunk.data(), n);
  }
  outcome.status = WEXITSTATUS(pclose(pipe));
  return outcome;
}

}  // namespace tessera::test
