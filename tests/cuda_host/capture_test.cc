// Captured graphs on a fake GPU: what they own, what a capture refuses, and that nothing is left of
// one that failed.
#include "cuda/runtime/capture.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/captured_graph.h"
#include "core/cuda_runtime.h"
#include "core/workspace.h"
#include "cuda/runtime/state.h"
#include "cuda/runtime/upload.h"
#include "cuda_host/fake_cuda_test.h"
#include "tessera/buffer.h"
#include "tessera/context.h"

namespace tessera::test {
namespace {

constexpr std::int64_t kBytes = 64;

class HostCapture : public FakeCudaTest {
 protected:
  void SetUp() override {
    FakeCudaTest::SetUp();
    fake::set_gpus({fake::Gpu{}, fake::Gpu{}});
    ctx_.emplace(ContextOptions{.device = Device::cuda(), .threads = 1});
    from_ = Buffer(kBytes, Device::cuda());
    to_ = Buffer(kBytes, Device::cuda());
  }
  void TearDown() override {
    from_ = Buffer();
    to_ = Buffer();
    ctx_.reset();
    FakeCudaTest::TearDown();
  }

  Context& ctx() { return *ctx_; }
  cudaStream_t stream() { return static_cast<cudaStream_t>(ctx().stream()); }
  void write(char value) {
    const std::string bytes(kBytes, value);
    copy_bytes(ctx(), from_.data(), Device::cuda(), bytes.data(), Device::cpu(), kBytes);
  }
  std::string read() {
    std::string bytes(kBytes, ' ');
    copy_bytes(ctx(), bytes.data(), Device::cpu(), to_.data(), Device::cuda(), kBytes);
    return bytes;
  }
  void copy_on_gpu(const Buffer& from, const Buffer& to) {
    copy_bytes(ctx(), to.data(), Device::cuda(), from.data(), Device::cuda(), kBytes);
  }
  // As an op that takes scratch. Returns where it was.
  void* copy_through_scratch(std::int64_t scratch_bytes) {
    Workspace::Frame frame(ctx().workspace());
    char* scratch = frame.take<char>(scratch_bytes);
    for (const auto& [to, from] :
         {std::pair<void*, const void*>{scratch, from_.data()}, {to_.data(), scratch}}) {
      copy_bytes(ctx(), to, Device::cuda(), from, Device::cuda(), kBytes);
    }
    return scratch;
  }
  // Launches the graph with several inputs.
  void expect_it_copies(const CapturedGraph& graph) {
    for (const char value : {'a', 'b', 'c'}) {
      write(value);
      graph.launch(ctx());
      EXPECT_EQ(read(), std::string(kBytes, value));
    }
  }
  // What every op needs of a Context: uploads (more than the ring has slots), scratch, waiting.
  void expect_the_context_works() {
    for (int i = 0; i < 3 * cuda::Uploader::kSmallSlots; ++i) {
      const char value = static_cast<char>('a' + i % 26);
      write(value);
      copy_through_scratch(1000);
      EXPECT_EQ(read(), std::string(kBytes, value));
    }
    ctx().synchronize();
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  }
  const cuda::Graph& backend(const CapturedGraph& graph) {
    return static_cast<const cuda::Graph&>(*graph.backend());
  }

  std::optional<Context> ctx_;
  Buffer from_, to_;
};

TEST_F(HostCapture, AGraphRunsItsWorkOnWhatTheMemoryHoldsThen) {
  write('x');
  copy_on_gpu(from_, to_);
  const CapturedGraph graph = capture(ctx(), [&] { copy_through_scratch(1000); });
  write('y');
  EXPECT_EQ(read(), std::string(kBytes, 'x'));  // the capture itself copied nothing
  expect_it_copies(graph);
}

TEST_F(HostCapture, ItsScratchIsItsOwn) {
  void *in_graph = nullptr, *in_second = nullptr;
  void* const before = copy_through_scratch(1000);
  const CapturedGraph graph = capture(ctx(), [&] { in_graph = copy_through_scratch(5 << 20); });
  const CapturedGraph second = capture(ctx(), [&] { in_second = copy_through_scratch(5 << 20); });
  EXPECT_NE(in_graph, before);
  EXPECT_NE(in_graph, in_second);
  EXPECT_EQ(copy_through_scratch(1000), before);  // the Context's is as it was
  EXPECT_GE(graph.scratch_bytes(), 5 << 20);

  // The workspace grows, becomes one block, and is released.
  ctx().workspace().reserve(7 << 20);
  copy_through_scratch(50 << 20);
  copy_through_scratch(50 << 20);
  ctx().workspace().release();
  const Buffer other(60 << 20, Device::cuda());  // may lie where something was freed
  std::memset(other.data(), 0x55, 60 << 20);     // a fake GPU's memory is the host's
  for (const CapturedGraph* each : {&graph, &second}) expect_it_copies(*each);
}

// Addresses that the graph knows already stay valid while its later ops need more.
TEST_F(HostCapture, ScratchThatGrowsDuringACaptureMovesNothing) {
  const std::int64_t before = fake::counters().hidden_waits;  // frees wait
  const CapturedGraph graph = capture(ctx(), [&] {
    copy_through_scratch(1000);
    ctx().workspace().reserve(3 << 20);
    copy_through_scratch(2 << 20);
    copy_through_scratch(20 << 20);
    ctx().workspace().release();
    copy_through_scratch(1000);
  });
  EXPECT_EQ(fake::counters().hidden_waits, before);
  expect_it_copies(graph);
}

TEST_F(HostCapture, ItsCountersAreItsOwnAndZero) {
  cuda::State& state = cuda::state_of(ctx());
  std::int32_t* const of_context = state.counters();
  std::int32_t *first = nullptr, *second = nullptr;
  const CapturedGraph one = capture(ctx(), [&] { first = state.counters(); });
  const CapturedGraph two = capture(ctx(), [&] { second = state.counters(); });
  EXPECT_NE(first, of_context);
  EXPECT_NE(second, of_context);
  EXPECT_NE(first, second);
  EXPECT_EQ(state.counters(), of_context);
  for (const CapturedGraph* graph : {&one, &two}) {
    EXPECT_NO_THROW(backend(*graph).check_counters(ctx()));
  }
  first[5] = -3;
  EXPECT_STREQ(error_of([&] { backend(one).check_counters(ctx()); }).what(),
               "counter 5 on cuda:0 is -3: the kernel that used it last left no zero");
  EXPECT_NO_THROW(backend(two).check_counters(ctx()));
  EXPECT_NO_THROW(cuda::check_counters(*ctx().backend_state()));
  of_context[8193] = 1;
  EXPECT_EQ(error_of([&] { cuda::check_counters(*ctx().backend_state()); }).code(),
            ErrorCode::device);
}

TEST_F(HostCapture, GraphsThatNeverRunTogetherMayShareTheirMemory) {
  cuda::State& state = cuda::state_of(ctx());
  std::vector<void*> scratch;
  std::vector<std::int32_t*> counters;
  const auto work = [&](std::int64_t bytes) {
    return [&, bytes] {
      scratch.push_back(copy_through_scratch(bytes));
      counters.push_back(state.counters());
    };
  };
  std::optional<CapturedGraph> large(capture(ctx(), work(3 << 20)));
  const std::int64_t blocks = fake::live().device_blocks;
  const CapturedGraph small = capture(ctx(), work(1000), &*large);
  EXPECT_EQ(fake::live().device_blocks, blocks);
  const CapturedGraph larger = capture(ctx(), work(30 << 20), &*large);
  EXPECT_EQ(fake::live().device_blocks, blocks + 1);
  EXPECT_EQ(scratch[1], scratch[0]);
  EXPECT_EQ(counters[1], counters[0]);
  EXPECT_EQ(counters[2], counters[0]);
  expect_it_copies(*large);
  large.reset();
  for (const CapturedGraph* graph : {&small, &larger}) expect_it_copies(*graph);
}

// The first kernel that wants counters may be in a capture: what sets them to zero must not be.
TEST_F(HostCapture, CountersAreMadeBeforeAnyCapture) {
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeGlobal), cudaSuccess);
  (void)cuda::state_of(ctx()).counters();
  ASSERT_EQ(cudaStreamEndCapture(stream(), &graph), cudaSuccess);
  std::size_t nodes = 99;
  EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
  EXPECT_EQ(nodes, 0u);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_NO_THROW(cuda::check_counters(*ctx().backend_state()));
}

// ---- what a capture refuses ---------------------------------------------------------------------

constexpr const char* kUploadRefused =
    "copying 64 bytes from cpu to cuda:0: the stream is being captured, and a graph cannot keep "
    "host memory: upload before the capture";

TEST_F(HostCapture, AnUploadIsRefusedAndHarmsNothing) {
  for (const bool pinned_memory_is_there : {false, true}) {
    if (pinned_memory_is_there) write('x');
    const CapturedGraph graph = capture(ctx(), [&] {
      copy_through_scratch(1000);
      for (int i = 0; i < 3 * cuda::Uploader::kSmallSlots; ++i) {
        const Error error = error_of([&] { write('a'); });
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        EXPECT_STREQ(error.what(), kUploadRefused);
      }
    });
    expect_it_copies(graph);
    expect_the_context_works();
  }
}

TEST_F(HostCapture, SoItIsInACaptureThatSomebodyElseBegan) {
  write('x');
  for (int i = 0; i < 2 * cuda::Uploader::kSmallSlots; ++i) {
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_STREQ(error_of([&] { write('y'); }).what(), kUploadRefused);
    const std::vector<char> large(cuda::Uploader::kChunkBytes + 1);
    EXPECT_NE(std::string(error_of([&] {
                            copy_bytes(ctx(), to_.data(), Device::cuda(), large.data(),
                                       Device::cpu(), std::ssize(large));
                          }).what())
                  .find("is being captured"),
              std::string::npos);
    ASSERT_EQ(cudaStreamEndCapture(stream(), &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
  expect_the_context_works();
}

TEST_F(HostCapture, WaitingEndsACaptureWithAnErrorAndTheContextGoesOn) {
  const std::function<void()> waits[] = {[&] { ctx().synchronize(); }, [&] { (void)read(); }};
  for (const auto& wait : waits) {
    const Error error = error_of([&] {
      (void)capture(ctx(), [&] {
        copy_through_scratch(1000);
        wait();
      });
    });
    EXPECT_EQ(error.code(), ErrorCode::device) << error.what();
    expect_the_context_works();
    // Also where the caller did not let the error through.
    EXPECT_EQ(
        std::string(error_of([&] { (void)capture(ctx(), [&] { (void)error_of(wait); }); }).what())
            .find("capturing a graph failed: "),
        0u);
    expect_the_context_works();
  }
  EXPECT_EQ(ctx().lost(), "");
}

TEST_F(HostCapture, AnExceptionLeavesTheContextAsItWas) {
  write('x');
  void* const scratch = copy_through_scratch(1000);
  std::int32_t* const counters = cuda::state_of(ctx()).counters();
  const fake::Live before = fake::live();
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW((void)capture(ctx(),
                               [&] {
                                 Workspace::Frame outer(ctx().workspace());
                                 outer.take<char>(100);
                                 copy_through_scratch(10 << 20);
                                 throw std::runtime_error("of the caller");
                               }),
                 std::runtime_error);
    EXPECT_EQ(fake::live(), before);
    EXPECT_EQ(copy_through_scratch(1000), scratch);
    EXPECT_EQ(cuda::state_of(ctx()).counters(), counters);
  }
  expect_the_context_works();
  expect_it_copies(capture(ctx(), [&] { copy_through_scratch(1000); }));
}

TEST_F(HostCapture, FailuresOfTheDriverLeaveTheContextAsItWas) {
  expect_the_context_works();
  const fake::Live before = fake::live();
  for (const char* call :
       {"cudaMalloc", "cudaMemsetAsync", "cudaStreamSynchronize", "cudaStreamBeginCapture",
        "cudaStreamEndCapture", "cudaGraphInstantiate"}) {
    fake::fail_once(call, cudaErrorInvalidValue);
    const Error error =
        error_of([&] { (void)capture(ctx(), [&] { copy_through_scratch(1000); }); });
    EXPECT_EQ(error.code(), ErrorCode::device) << call;
    EXPECT_NE(std::string(error.what()).find("cudaErrorInvalidValue"), std::string::npos)
        << error.what();
    if (std::string(call) == "cudaStreamEndCapture") {  // it did nothing, so it is still to be done
      cudaGraph_t graph = nullptr;
      ASSERT_EQ(cudaStreamEndCapture(stream(), &graph), cudaSuccess);
      ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    }
    EXPECT_EQ(fake::live(), before) << call;
    expect_it_copies(capture(ctx(), [&] { copy_through_scratch(1000); }));
  }
}

TEST_F(HostCapture, WhatMakesNoSenseIsRefusedWithASentence) {
  const auto nothing = [] {};
  const auto refusal = [](const std::function<void()>& fn) {
    return std::string(error_of(fn).what());
  };
  Context cpu, second({.device = Device::cuda(1)});
  const CapturedGraph graph = capture(ctx(), nothing);
  EXPECT_EQ(refusal([&] { (void)capture(cpu, nothing); }),
            "capture: this Context is on the CPU, which has no graphs: run the ops themselves");
  EXPECT_EQ(refusal([&] { CapturedGraph().launch(ctx()); }),
            "launch: the graph is empty; make one with capture()");
  EXPECT_EQ(refusal([&] { graph.launch(cpu); }),
            "launch: the graph was captured on cuda:0, and this Context is on cpu");
  EXPECT_EQ(refusal([&] { graph.launch(second); }),
            "launch: the graph was captured on cuda:0, and this Context is on cuda:1");
  EXPECT_EQ(refusal([&] { (void)capture(second, nothing, &graph); }),
            "capture on cuda:1: the other graph's memory is on cuda:0");
  const CapturedGraph outer = capture(ctx(), [&] {
    EXPECT_EQ(refusal([&] { (void)capture(ctx(), nothing); }),
              "capture: the stream of this Context is being captured already: end that capture "
              "first");
    EXPECT_EQ(refusal([&] { graph.launch(ctx()); }),
              "launch: this Context is capturing, and a graph cannot be part of another: launch it "
              "afterwards");
    copy_through_scratch(1000);
  });
  expect_it_copies(outer);
  {
    const Workspace::Count count(ctx().workspace());
    EXPECT_EQ(refusal([&] { (void)capture(ctx(), nothing); }),
              "capture: the workspace only counts, so there would be no work: capture afterwards");
  }
  ctx().trace().enable();
  EXPECT_EQ(refusal([&] { (void)capture(ctx(), nothing); }),
            "capture: the trace waits for every op, and a capture cannot wait: turn the trace off");
}

// ---- lifetimes ----------------------------------------------------------------------------------

TEST_F(HostCapture, AGraphMayEndWhileItRunsAndOutliveItsContext) {
  std::optional<CapturedGraph> graph;
  {
    Context other({.device = Device::cuda(), .threads = 1});
    graph.emplace(capture(other, [&] {
      copy_bytes(other, to_.data(), Device::cuda(), from_.data(), Device::cuda(), kBytes);
    }));
  }
  expect_it_copies(*graph);  // on another Context
  write('z');
  graph->launch(ctx());
  graph.reset();
  EXPECT_EQ(read(), std::string(kBytes, 'z'));
}

TEST_F(HostCapture, AGraphOnALostGpuEndsTheContext) {
  const CapturedGraph graph = capture(ctx(), [&] { copy_through_scratch(1000); });
  fake::lose_gpus(cudaErrorIllegalAddress);
  EXPECT_EQ(error_of([&] { graph.launch(ctx()); }).code(), ErrorCode::device);
  EXPECT_NE(ctx().lost().find("launching a captured graph failed: "), std::string::npos);
  EXPECT_EQ(error_of([&] { (void)capture(ctx(), [] {}); }).what(), ctx().lost());
  fake::lose_gpus(cudaSuccess);  // found again, so that everything can be freed
}

}  // namespace
}  // namespace tessera::test
