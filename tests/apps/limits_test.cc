// What the machine does not grant is one sentence and status 1, at once.
#include <gtest/gtest.h>

#include <string>

#include "support/program.h"

namespace tessera::test {
namespace {

// The bundled model, in a shell with limits of its own.
ProgramRun run_within(const std::string& limits, const std::string& arguments) {
  return run_program("/bin/sh",
                     "-c '" + limits + "; exec \"" + TESSERA_PROGRAM + "\" " + arguments + "'");
}

TEST(Limits, ThreadsThatCannotStartAreOneSentence) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers need more address space than the test allows";
#endif
  // A thread takes 8 MiB of addresses for its stack: a thousand of them are twice what there is.
  const ProgramRun run =
      run_within("ulimit -s 8192; ulimit -v 4000000", "generate --threads 1000 Once");
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.out, "");
  EXPECT_TRUE(run.err.starts_with("tessera: 1000 threads were asked for and ")) << run.err;
  EXPECT_NE(run.err.find(" could start (Resource temporarily unavailable); use --threads "),
            std::string::npos)
      << run.err;
}

TEST(Limits, ACacheThatNoMachineHoldsIsRefusedAtOnce) {
  ProgramRun run = run_program(
      TESSERA_PROGRAM, "generate --device cpu --attention-sinks 2000000000 --window 1 Once");
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.err.find("no window at all fits beside 2000000000 attention sinks; use fewer "
                         "(--attention-sinks 4)"),
            std::string::npos)
      << run.err;
  run = run_program(TESSERA_PROGRAM,
                    "generate --device cpu --context 2000000000 --max-tokens -1 Once");
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.err.find("the largest context that fits is "), std::string::npos) << run.err;
}

}  // namespace
}  // namespace tessera::test
