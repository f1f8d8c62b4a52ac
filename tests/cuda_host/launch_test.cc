// What a launch asks the CUDA runtime for.
#include "cuda/runtime/launch.h"

#include <gtest/gtest.h>

#include <string>

#include "cuda/runtime/blocks_at_once.h"
#include "cuda_host/fake_cuda_test.h"

namespace tessera::test {
namespace {

void any_kernel(int) {}

class HostLaunch : public FakeContextTest {
 protected:
  void launch(const cuda::Grid& grid) { cuda::Launch(*ctx_, "any")(any_kernel, grid, 3); }
};

TEST_F(HostLaunch, OnlyWhatTheGridSays) {
  launch({.blocks = 9, .threads = dim3(32)});
  EXPECT_EQ(fake::counters().overlaps, 0);
  launch({.blocks = 9, .threads = dim3(32), .overlaps = true});
  launch({.blocks = 8, .threads = dim3(32), .cluster = 2});
  launch({.blocks = 8, .threads = dim3(32), .overlaps = true, .cluster = 2});
  EXPECT_EQ(fake::counters().overlaps, 2);
  EXPECT_EQ(fake::counters().all_at_once, 0);
}

// Blocks that wait for each other start together, or the launch is refused: it never hangs.
TEST_F(HostLaunch, AllBlocksAtOnceOrNone) {
  const int most = cuda::blocks_at_once(cuda::state_of(*ctx_).limits());
  launch({.blocks = most, .threads = dim3(32), .all_at_once = true});
  EXPECT_EQ(fake::counters().all_at_once, 1);
  EXPECT_EQ(fake::counters().overlaps, 0);
  const Error error =
      error_of([&] { launch({.blocks = most + 1, .threads = dim3(32), .all_at_once = true}); });
  EXPECT_NE(std::string(error.what()).find("launching any failed"), std::string::npos)
      << error.what();
}

}  // namespace
}  // namespace tessera::test
