// What captured graphs need of the core, and what they say on the CPU. Captures themselves are
// tested in tests/cuda_host and tests/cuda.
#include "core/captured_graph.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "core/workspace.h"
#include "tessera/buffer.h"
#include "tessera/context.h"
#include "tessera/error.h"

namespace tessera::test {
namespace {

TEST(CapturedGraph, TheCpuHasNone) {
  Context ctx;
  bool ran = false;
  try {
    (void)capture(ctx, [&] { ran = true; });
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_STREQ(
        error.what(),
        "capture: this Context is on the CPU, which has no graphs: run the ops themselves");
  }
  EXPECT_FALSE(ran);
  const CapturedGraph none;
  EXPECT_FALSE(none);
  EXPECT_EQ(none.scratch_bytes(), 0);
  EXPECT_THROW(none.launch(ctx), Error);
}

TEST(WorkspaceElsewhere, FramesTakeFromTheBlocksOfAnotherWhichNeverMove) {
  Workspace workspace(Device::cpu());
  std::vector<Buffer> blocks;
  Workspace::Frame outer(workspace);
  char* const own = outer.take<char>(1000);
  own[999] = 7;
  const std::int64_t held = workspace.held_bytes();
  char* small = nullptr;
  for (int repeat = 0; repeat < 2; ++repeat) {
    const Workspace::Elsewhere elsewhere(workspace, blocks);
    {
      Workspace::Frame frame(workspace);
      char* const taken = frame.take<char>(1000);
      EXPECT_TRUE(repeat == 0 || taken == small);
      small = taken;
      std::memset(small, 1, 1000);
    }
    for (const std::int64_t more : {2 << 20, 9 << 20}) {  // each in a block of its own
      Workspace::Frame frame(workspace);
      std::memset(frame.take<char>(more), 2, static_cast<std::size_t>(more));
    }
    workspace.release();
    EXPECT_EQ(small[999], 1);  // neither freed nor given to anyone
    Workspace::Frame frame(workspace);
    EXPECT_EQ(frame.take<char>(1000), small);
  }
  EXPECT_EQ(blocks.size(), 3u);
  EXPECT_EQ(small[999], 1);
  EXPECT_EQ(workspace.held_bytes(), held);
  EXPECT_EQ(own[999], 7);
  EXPECT_EQ(outer.take<char>(64), own + 1024);  // it goes on where it was
}

// A workspace without memory of its own gets none from the other.
TEST(WorkspaceElsewhere, LeavesAnEmptyWorkspaceEmpty) {
  Workspace workspace(Device::cpu());
  std::vector<Buffer> blocks;
  {
    const Workspace::Elsewhere elsewhere(workspace, blocks);
    workspace.reserve(5000);
    Workspace::Frame frame(workspace);
    frame.take<char>(100);
  }
  EXPECT_EQ(workspace.held_bytes(), 0);
  ASSERT_EQ(blocks.size(), 1u);
  EXPECT_EQ(blocks[0].bytes(), 5056);
}

}  // namespace
}  // namespace tessera::test
