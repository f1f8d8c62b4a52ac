// Buffer, Workspace, Trace and Context.
#include "tessera/context.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/philox.h"
#include "core/thread_pool.h"
#include "core/workspace.h"
#include "tessera/buffer.h"
#include "tessera/error.h"
#include "tessera/version.h"

namespace tessera {
namespace {

TEST(Buffer, OwnsAlignedMemory) {
  Buffer buffer(DType::f16, {3, 5});
  EXPECT_EQ(buffer.bytes(), 30);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % Buffer::kAlignment, 0u);
  void* data = buffer.data();
  Buffer moved = std::move(buffer);
  EXPECT_EQ(moved.data(), data);
  EXPECT_EQ(moved.tensor(DType::f16, {3, 5}).data, data);
  EXPECT_THROW((void)moved.tensor(DType::f16, {4, 5}), Error);
  EXPECT_THROW(Buffer(-1), Error);
  EXPECT_EQ(Buffer(0).data(), nullptr);
}

TEST(Buffer, KnowsItsShape) {
  const Buffer buffer(DType::bf16, {3, 5});
  EXPECT_EQ(to_string(buffer.tensor()), "bf16[3, 5]");
  EXPECT_EQ(buffer.tensor().data, buffer.data());
  EXPECT_FALSE(buffer.tensor().read_only);
  EXPECT_EQ(to_string(Buffer(7).tensor()), "u8[7]");
  EXPECT_FALSE(Buffer().tensor().defined());
}

TEST(Buffer, TakesAShapeAtRunTime) {
  const std::vector<std::int64_t> shape{2, 3, 4};
  Buffer buffer(DType::f32, shape);
  EXPECT_EQ(buffer.bytes(), 96);
  EXPECT_EQ(to_string(buffer.tensor()), "f32[2, 3, 4]");
  const std::vector<std::int64_t> flat{12};
  EXPECT_EQ(to_string(buffer.tensor(DType::i64, flat)), "i64[12]");
  EXPECT_EQ(to_string(Buffer(DType::i8, std::vector<std::int64_t>{0, 9}).tensor()), "i8[0, 9]");
}

TEST(Buffer, MovingTakesTheShapeAlong) {
  Buffer from(DType::f32, {2, 2}), to(DType::u8, {9});
  to = std::move(from);
  EXPECT_EQ(to_string(to.tensor()), "f32[2, 2]");
  EXPECT_EQ(from.bytes(), 0);             // NOLINT(bugprone-use-after-move)
  EXPECT_FALSE(from.tensor().defined());  // NOLINT(bugprone-use-after-move)
}

TEST(Buffer, AHugeRequestIsAnErrorNotACrash) {
  try {
    Buffer buffer(std::int64_t{1} << 60);
    FAIL() << "2^60 bytes were allocated";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    EXPECT_TRUE(
        std::string(error.what()).starts_with("1073741824.00 GiB of memory were requested and "))
        << error.what();
  }
}

TEST(Workspace, FramesNestAndPointersStayValidWhileItGrows) {
  Workspace workspace(Device::cpu());
  {
    Workspace::Frame outer(workspace);
    float* a = outer.take<float>(1000);
    a[999] = 7.f;
    {
      Workspace::Frame inner(workspace);
      std::memset(inner.take<char>(10 << 20), 0, 10 << 20);  // beyond the first block
    }
    EXPECT_EQ(a[999], 7.f);
    const Tensor t = outer.take(DType::bf16, {3, 7});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.data) % Buffer::kAlignment, 0u);
  }
  const std::int64_t held = workspace.held_bytes();
  EXPECT_GE(held, 10 << 20);
  void* first = nullptr;
  for (int repeat = 0; repeat < 3;
       ++repeat) {  // the same demand takes no more memory and gets the same place
    Workspace::Frame frame(workspace);
    float* a = frame.take<float>(1000);
    std::memset(frame.take<char>(10 << 20), 0, 10 << 20);
    if (repeat > 0) {
      EXPECT_EQ(a, first);
    }
    first = a;
    EXPECT_EQ(workspace.held_bytes(), held);
  }
  EXPECT_GE(workspace.peak_bytes(), 10 << 20);
  EXPECT_LT(workspace.peak_bytes(), 11 << 20);
}

TEST(Workspace, ReservedMemoryIsTakenWithoutAnAllocation) {
  Workspace workspace(Device::cpu());
  workspace.reserve(5000);
  EXPECT_EQ(workspace.held_bytes(), 5056);  // whole cache lines
  workspace.reserve(100);                   // already there
  EXPECT_EQ(workspace.held_bytes(), 5056);
  {
    Workspace::Frame frame(workspace);
    frame.take<char>(4000);
    frame.take<char>(1000);
    EXPECT_EQ(workspace.held_bytes(), 5056);
  }
  workspace.reserve(10000);  // replaces the old block instead of adding one
  EXPECT_EQ(workspace.held_bytes(), 10048);
}

TEST(Workspace, ReservesBesideWhatIsInUse) {
  Workspace workspace(Device::cpu());
  workspace.reserve(4096);
  Workspace::Frame outer(workspace);
  char* in_use = outer.take<char>(3000);
  in_use[2999] = 7;
  workspace.reserve(1000);  // fits in the rest of the block
  EXPECT_EQ(workspace.held_bytes(), 4096);
  workspace.reserve(2000);
  workspace.reserve(2000);
  const std::int64_t held = workspace.held_bytes();
  EXPECT_EQ(held, 4096 + 2048);
  {
    Workspace::Frame inner(workspace);
    std::memset(inner.take<char>(1000), 0, 1000);
    std::memset(inner.take<char>(900), 0, 900);
  }
  EXPECT_EQ(workspace.held_bytes(), held);
  EXPECT_EQ(in_use[2999], 7);
  workspace.release();  // does nothing while memory is in use
  EXPECT_EQ(workspace.held_bytes(), held);
}

TEST(Workspace, GivesItsMemoryBack) {
  Workspace workspace(Device::cpu());
  workspace.reserve(4096);
  workspace.release();
  EXPECT_EQ(workspace.held_bytes(), 0);
  Workspace::Frame frame(workspace);
  EXPECT_NE(frame.take<char>(1), nullptr);
}

TEST(Workspace, CountsWithoutMemory) {
  Workspace workspace(Device::cpu());
  Workspace::Frame outer(workspace);
  outer.take<char>(100);
  const std::int64_t held = workspace.held_bytes(), peak = workspace.peak_bytes();
  {
    const Workspace::Count count(workspace);
    EXPECT_TRUE(workspace.is_counting());
    {
      Workspace::Frame frame(workspace);
      const Tensor a = frame.take(DType::f32, {std::int64_t{1} << 50});
      const char* b = frame.take<char>(1);
      EXPECT_EQ(b - a.ptr<char>(), std::int64_t{1} << 52);  // one after the other
      EXPECT_EQ(count.used_bytes(), (std::int64_t{1} << 52) + 64);
    }
    Workspace::Frame frame(workspace);
    frame.take<char>(1);
    EXPECT_EQ(count.used_bytes(), 64);
    EXPECT_EQ(count.peak_bytes(), (std::int64_t{1} << 52) + 64);
  }
  EXPECT_FALSE(workspace.is_counting());
  EXPECT_EQ(workspace.held_bytes(), held);
  EXPECT_EQ(workspace.peak_bytes(), peak);
  EXPECT_EQ(ScratchSize().add<float>(17).add<char>(0).bytes(), 128 + 64);
}

TEST(Trace, AddsUpEqualCalls) {
  Trace trace;
  EXPECT_FALSE(trace.enabled());
  trace.record({"linear", "cpu.gemv", "a", 1, 0.5, 10, 20});
  trace.record({"linear", "cpu.gemv", "a", 1, 0.25, 10, 20});
  trace.record({"linear", "cpu.gemm", "b", 1, 1.0, 30, 40});
  ASSERT_EQ(trace.entries().size(), 2u);
  EXPECT_EQ(trace.entries()[0].calls, 2);
  EXPECT_EQ(trace.entries()[0].seconds, 0.75);
  EXPECT_EQ(trace.entries()[0].bytes, 20);
  EXPECT_EQ(trace.entries()[0].flops, 40);
  EXPECT_EQ(trace.calls("linear"), 3);
  EXPECT_EQ(trace.calls("linear", "cpu.gemm"), 1);
  EXPECT_EQ(trace.calls("attention"), 0);
  trace.clear();
  EXPECT_TRUE(trace.entries().empty());
}

TEST(Context, HasItsOwnThreadsAndOptions) {
  Context a({.threads = 3, .activations = Activations::int8, .trace = true});
  Context b({.threads = 1});
  EXPECT_EQ(a.threads(), 3);
  EXPECT_EQ(b.threads(), 1);
  EXPECT_EQ(a.activations(), Activations::int8);
  EXPECT_TRUE(a.trace().enabled());
  EXPECT_FALSE(b.trace().enabled());
  EXPECT_EQ(b.stream(), nullptr);
  EXPECT_THROW(Context({.threads = -2}), Error);
}

TEST(Context, SharesThreadsIfAskedTo) {
  auto first = std::make_unique<Context>(ContextOptions{.threads = 3});
  Context second({.share_threads_with = first.get()});
  EXPECT_EQ(&second.pool(), &first->pool());
  EXPECT_NE(&second.workspace(), &first->workspace());
  EXPECT_EQ(Context({.threads = 3, .share_threads_with = &second}).threads(), 3);
  first.reset();  // the threads live on
  std::atomic<int> tasks = 0;
  second.pool().parallel_for(100, [&](std::int64_t, int) { ++tasks; });
  EXPECT_EQ(tasks, 100);
  try {
    Context({.threads = 2, .share_threads_with = &second});
    FAIL() << "2 of 3 threads";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "2 threads were asked for and the Context to share them with has 3; give 0 for as "
                 "many");
  }
}

TEST(Context, ListsTheCpuFirst) {
  const auto all = devices();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all[0].device, Device::cpu());
  EXPECT_GT(all[0].memory_bytes, 0);
  EXPECT_FALSE(all[0].capability.empty());
  EXPECT_FALSE(cuda_status().empty());
  EXPECT_EQ(to_string(Device::cuda(1)), "cuda:1");
}

TEST(Context, TellsHowMuchMemoryTheMachineHas) {
  const DeviceMemory memory = device_memory(Device::cpu());
  EXPECT_EQ(memory.total, devices()[0].memory_bytes);
  EXPECT_GT(memory.free, 0);
  EXPECT_LE(memory.free, memory.total);
}

TEST(Context, AMissingGpuIsAClearError) {
  if (devices().size() > 1) GTEST_SKIP() << "this machine has a GPU";
  try {
    Context ctx({.device = Device::cuda(0)});
    FAIL() << "a context on a GPU that is not there";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("CUDA"), std::string::npos) << error.what();
  }
}

TEST(Version, MatchesTheNumbers) {
  EXPECT_EQ(std::string(version()), std::to_string(TESSERA_VERSION_MAJOR) + "." +
                                        std::to_string(TESSERA_VERSION_MINOR) + "." +
                                        std::to_string(TESSERA_VERSION_PATCH));
}

// The known answers published with Random123 (kat_vectors, philox4x32 10).
TEST(Philox, GivesThePublishedWords) {
  EXPECT_EQ(philox(0, {0, 0, 0, 0}),
            (PhiloxWords{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox(~std::uint64_t{0}, {~0u, ~0u, ~0u, ~0u}),
            (PhiloxWords{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(philox(0x299f31d0a4093822u, {0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}),
            (PhiloxWords{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

}  // namespace
}  // namespace tessera
