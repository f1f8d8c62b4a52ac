// Every rank runs the same tests and reports what fails; only rank 0 says what passes.
#include <gtest/gtest.h>

#include <memory>

#include "parallel/ranks.h"

namespace {

std::unique_ptr<tessera::parallel::MpiWorld>& started() {
  static std::unique_ptr<tessera::parallel::MpiWorld> world;
  return world;
}

}  // namespace

tessera::parallel::MpiWorld& tessera::test::world() { return *started(); }

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  started() = tessera::parallel::MpiWorld::start();
  if (tessera::test::ranks().rank() != 0) ::testing::GTEST_FLAG(brief) = true;
  const int status = RUN_ALL_TESTS();
  // A rank that failed ends all of them: the others may wait for it.
  if (status != 0) started()->abort(status);
  started().reset();
  return status;
}
