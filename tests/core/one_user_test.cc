// One thread at a time on a Context, and frames of its workspace in order.
#include "core/one_user.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "core/workspace.h"
#include "tessera/buffer.h"
#include "tessera/context.h"
#include "tessera/error.h"
#include "tessera/softmax.h"

namespace tessera::test {
namespace {

// What a call on another thread throws; empty: nothing.
std::string refusal_elsewhere(const std::function<void()>& call) {
  std::string text;
  std::thread([&] {
    try {
      call();
    } catch (const Error& error) {
      text = error.code() == ErrorCode::invalid_argument ? error.what() : "another error";
    }
  }).join();
  return text;
}

std::string refusal_here(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code() == ErrorCode::invalid_argument ? error.what() : "another error";
  }
  return {};
}

TEST(OneUser, RefusesASecondThreadUntilTheFirstHasLeft) {
  OneUser user;
  {
    const OneUser::Use outer(user, "outer");
    const OneUser::Use inner(user, "inner");  // the same thread may enter again
    EXPECT_EQ(refusal_elsewhere([&] { const OneUser::Use second(user, "second"); }),
              "second: another thread is using this Context; give each thread a Context of its "
              "own, which may share its CPU threads (ContextOptions::share_threads_with)");
  }
  EXPECT_EQ(refusal_elsewhere([&] { const OneUser::Use second(user, "second"); }), "");
}

TEST(OneUser, ADestructorWaitsInstead) {
  OneUser user;
  std::atomic<bool> entered = false;
  auto use = std::make_unique<OneUser::Use>(user, "first");
  std::thread second([&] {
    const OneUser::Use waits(user);
    entered = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_FALSE(entered);
  use.reset();
  second.join();
  EXPECT_TRUE(entered);
}

TEST(OneUser, AnOpOnABusyContextIsRefusedAndWritesNothing) {
  Context ctx({.threads = 1});
  float x[2] = {1, 1}, out[2] = {-7, -7};
  const SoftmaxArgs args{.x = Tensor(x, DType::f32, {1, 2}),
                         .out = Tensor(out, DType::f32, {1, 2})};
  {
    const OneUser::Use busy(ctx.workspace().user(), "test");
    EXPECT_TRUE(
        refusal_elsewhere([&] { softmax(ctx, args); }).starts_with("softmax: another thread"));
    EXPECT_TRUE(refusal_elsewhere([&] {
                  Workspace::Frame frame(ctx.workspace());
                }).starts_with("scratch memory: another thread"));
    EXPECT_EQ(out[0], -7);
    EXPECT_EQ(refusal_here([&] { softmax(ctx, args); }), "");
  }
  EXPECT_EQ(out[0], .5f);
  EXPECT_EQ(refusal_elsewhere([&] { softmax(ctx, args); }), "");  // handed over
}

// Counting changes what ops do, so that another thread must not run one meanwhile.
TEST(OneUser, NoOpRunsWhileAnotherThreadCounts) {
  Context ctx({.threads = 1});
  const Workspace::Count count(ctx.workspace());
  EXPECT_NE(refusal_elsewhere([&] { Workspace::Frame frame(ctx.workspace()); }), "");
}

const std::string kOutOfOrder =
    "scratch memory: a Workspace::Frame has ended before a newer one; end them in the reverse "
    "order";

TEST(WorkspaceOrder, AFrameThatEndsTooEarlyIsReportedOnceAndLosesNothing) {
  Workspace workspace(Device::cpu());
  auto first = std::make_unique<Workspace::Frame>(workspace);
  char* const older = first->take<char>(100);
  auto second = std::make_unique<Workspace::Frame>(workspace);
  char* const newer = second->take<char>(100);
  std::memset(newer, 7, 100);
  first.reset();
  EXPECT_EQ(refusal_here([&] { second->take<char>(1); }), kOutOfOrder);
  EXPECT_EQ(refusal_here([&] { Workspace::Frame third(workspace); }), kOutOfOrder);
  EXPECT_EQ(newer[99], 7);
  second.reset();
  EXPECT_EQ(refusal_here([&] { Workspace::Frame third(workspace); }), kOutOfOrder);
  // All have ended, and it was said: the memory is whole again.
  Workspace::Frame fourth(workspace);
  EXPECT_EQ(fourth.take<char>(100), older);
  EXPECT_EQ(workspace.peak_bytes(), 256);
}

TEST(WorkspaceOrder, IsReportedEvenIfNothingWasTakenMeanwhile) {
  Workspace workspace(Device::cpu());
  auto first = std::make_unique<Workspace::Frame>(workspace);
  auto second = std::make_unique<Workspace::Frame>(workspace);
  auto third = std::make_unique<Workspace::Frame>(workspace);
  third->take<char>(100);
  first.reset();
  second.reset();
  third.reset();
  EXPECT_EQ(refusal_here([&] { Workspace::Frame frame(workspace); }), kOutOfOrder);
  EXPECT_EQ(refusal_here([&] { Workspace::Frame frame(workspace); }), "");
}

TEST(WorkspaceOrder, OnlyTheNewestFrameTakesMemory) {
  Workspace workspace(Device::cpu());
  Workspace::Frame outer(workspace);
  {
    Workspace::Frame inner(workspace);
    EXPECT_EQ(refusal_here([&] { outer.take<char>(1); }),
              "scratch memory: an older Workspace::Frame takes memory while a newer one lives; "
              "take it from the newest");
    EXPECT_NO_THROW(inner.take<char>(1));
  }
  EXPECT_NO_THROW(outer.take<char>(1));
}

}  // namespace
}  // namespace tessera::test
