// Runs a program as a user would, through a shell.
#pragma once

#include <string>

namespace tessera::test {

struct ProgramRun {
  int status;            // 128 + signal if a signal ended it
  std::string out, err;  // standard output and standard error
};

// `arguments` are written as one would type them. `input` is passed on standard input.
ProgramRun run_program(const std::string& program, const std::string& arguments,
                       const std::string& input = "");

// Starts the program, sends it an interrupt (Ctrl-C) as soon as it has written something to
// standard output, and waits for its end.
ProgramRun interrupt_program(const std::string& program, const std::string& arguments);

// Starts the program on a terminal, sends it an interrupt as soon as it has shown what this regular
// expression finds, and waits for its end. All that it has shown is in `out`.
ProgramRun interrupt_on_terminal(const std::string& program, const std::string& arguments,
                                 const std::string& expression);

}  // namespace tessera::test
