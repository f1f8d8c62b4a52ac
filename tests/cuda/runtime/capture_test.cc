// Captured graphs of real ops: bit for bit what the ops give, however often they run, beside each
// other, beside the Context's own work, and after its workspace has changed.
#include "cuda/runtime/capture.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/captured_graph.h"
#include "core/cuda_runtime.h"
#include "core/workspace.h"
#include "cuda/linear/choose.h"
#include "cuda/runtime/op_chain.h"
#include "cuda/runtime/state.h"
#include "support/compare.h"
#include "support/decode_case.h"
#include "support/devices.h"
#include "tessera/buffer.h"
#include "tessera/context.h"
#include "tessera/error.h"

namespace tessera::test {
namespace {

class CudaCaptureTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    ctx().trace().enable(false);
    other_ = context(1);
    other_->trace().enable(false);
  }
  // Another stream.
  Context& other() { return *other_; }

  static CapturedGraph graph_of(Context& ctx, const OpChain& chain) {
    return capture(ctx, [&] { chain.run(ctx); });
  }
  void expect_all_results(const CapturedGraph& graph, const OpChain& chain) {
    for (int i = 0; i < OpChain::kInputs; ++i) {
      chain.set_input(ctx(), i);
      graph.launch(ctx());
      EXPECT_EQ(chain.result(ctx()), chain.expected(i)) << "input " << i;
    }
    expect_zeros(graph);
  }
  void expect_zeros(const CapturedGraph& graph) {
    EXPECT_NO_THROW(static_cast<const cuda::Graph&>(*graph.backend()).check_counters(ctx()));
    EXPECT_NO_THROW(cuda::check_counters(*ctx().backend_state()));
  }

 private:
  std::unique_ptr<Context> other_;
};
INSTANTIATE_TEST_SUITE_P(Devices, CudaCaptureTest, testing::Values(Device::cuda()), device_name);

// One row: its keys are shared out among blocks, and counters tell which of them is the last. 24
// rows: so are the tiles of the product.
constexpr ChainSizes kFew{.rows = 1, .heads = 2, .keys = 600};
constexpr ChainSizes kMore{.rows = 24, .heads = 2, .keys = 90};

TEST_P(CudaCaptureTest, AGraphGivesTheBitsOfItsOps) {
  for (const ChainSizes& sizes : {kFew, kMore}) {
    const OpChain chain(ctx(), sizes, 1);
    expect_all_results(graph_of(ctx(), chain), chain);
  }
}

// Of a launch whose blocks start all at once.
TEST_P(CudaCaptureTest, AGraphOfAllLayersInOneKernelGivesItsBits) {
  for (const std::optional<Format> format : {std::optional<Format>(), {Format::nvfp4}}) {
    DecodeCall call(ctx(), {.layers = 1, .format = format, .keys = 40});
    EXPECT_TRUE(decode_layers(ctx(), call.args));
    const Array expected = call.read_x();
    const CapturedGraph graph =
        capture(ctx(), [&] { EXPECT_TRUE(decode_layers(ctx(), call.args)); });
    for (int i = 0; i < 3; ++i) {
      call.restore_x();
      graph.launch(ctx());
      EXPECT_TRUE(identical(call.read_x(), expected)) << "launch " << i;
    }
    expect_zeros(graph);
  }
}

TEST_P(CudaCaptureTest, SoItDoesAfterTheWorkspaceHasGrownAndShrunk) {
  const OpChain chain(ctx(), kFew, 2);
  const CapturedGraph graph = graph_of(ctx(), chain);
  const auto scribble = [&] {  // over scratch of the Context
    Workspace::Frame frame(ctx().workspace());
    char* scratch = frame.take<char>(20 << 20);
    ASSERT_EQ(cudaMemsetAsync(scratch, 0x77, 20 << 20, static_cast<cudaStream_t>(ctx().stream())),
              cudaSuccess);
  };
  scribble();
  scribble();  // by now one block
  expect_all_results(graph, chain);
  ctx().workspace().release();
  const Buffer elsewhere(20 << 20, GetParam());  // where something may have been freed
  ASSERT_EQ(
      cudaMemsetAsync(elsewhere.data(), 0x77, 20 << 20, static_cast<cudaStream_t>(ctx().stream())),
      cudaSuccess);
  expect_all_results(graph, chain);
}

TEST_P(CudaCaptureTest, GraphsOnOneStreamMayShareTheirMemory) {
  const OpChain few(ctx(), kFew, 3), more(ctx(), kMore, 4);
  const CapturedGraph first = graph_of(ctx(), few);
  const CapturedGraph second = capture(
      ctx(), [&] { more.run(ctx()); }, &first);
  for (int i = 0; i < OpChain::kInputs; ++i) {
    few.set_input(ctx(), i);
    more.set_input(ctx(), i);
    first.launch(ctx());
    second.launch(ctx());
    EXPECT_EQ(few.result(ctx()), few.expected(i));
    EXPECT_EQ(more.result(ctx()), more.expected(i));
  }
}

// More refusals than the ring of small uploads has slots.
TEST_P(CudaCaptureTest, AnUploadInACaptureIsRefusedAndTheContextGoesOn) {
  const OpChain chain(ctx(), kFew, 5);
  const Buffer buffer(1 << 20, GetParam());
  const std::vector<char> bytes(1 << 20, 'a');
  const auto upload = [&](std::int64_t size) {
    copy_bytes(ctx(), buffer.data(), GetParam(), bytes.data(), Device::cpu(), size);
  };
  upload(4);
  const CapturedGraph graph = capture(ctx(), [&] {
    for (int i = 0; i < 2 * cuda::Uploader::kSmallSlots; ++i) {
      EXPECT_THROW(upload(4), Error);
      EXPECT_THROW(upload(1 << 20), Error);
    }
    chain.run(ctx());
  });
  expect_all_results(graph, chain);
  for (int i = 0; i < 2 * cuda::Uploader::kSmallSlots; ++i) upload(4 + i);
  upload(1 << 20);
  std::vector<char> read(1 << 20);
  copy_bytes(ctx(), read.data(), Device::cpu(), buffer.data(), GetParam(), 1 << 20);
  EXPECT_EQ(read, bytes);
}

TEST_P(CudaCaptureTest, AFailedCaptureLeavesTheContextAsItWas) {
  const OpChain chain(ctx(), kFew, 6);
  EXPECT_THROW((void)capture(ctx(),
                             [&] {
                               chain.run(ctx());
                               throw std::runtime_error("of the caller");
                             }),
               std::runtime_error);
  EXPECT_THROW((void)capture(ctx(),
                             [&] {
                               chain.run(ctx());
                               ctx().synchronize();
                             }),
               Error);
  EXPECT_EQ(ctx().lost(), "");
  chain.set_input(ctx(), 3);
  chain.run(ctx());
  EXPECT_EQ(chain.result(ctx()), chain.expected(3));
  expect_all_results(graph_of(ctx(), chain), chain);
}

TEST_P(CudaCaptureTest, AGraphMayEndWhileItRuns) {
  const OpChain chain(ctx(), kFew, 7);
  for (int i = 0; i < OpChain::kInputs; ++i) {
    {
      const CapturedGraph graph = graph_of(ctx(), chain);
      chain.set_input(ctx(), i);
      graph.launch(ctx());
    }
    EXPECT_EQ(chain.result(ctx()), chain.expected(i));
  }
}

// ---- the check of the counters ------------------------------------------------------------------

// What one kernel left behind is found before the next relies on it.
TEST_P(CudaCaptureTest, ACounterThatIsNotZeroStopsTheNextKernel) {
  if (!cuda::State::checks_counters()) GTEST_SKIP() << "a build without TESSERA_CHECK_COUNTERS";
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // CUDA does not survive a fork
  const auto run = [&] {
    dup2(STDERR_FILENO, STDOUT_FILENO);  // where a kernel prints
    const OpChain chain(ctx(), kFew, 8);
    const std::int32_t left = 7;
    copy_bytes(ctx(), cuda::state_of(ctx()).counters() + 5, GetParam(), &left, Device::cpu(), 4);
    chain.run(ctx());
    try {
      ctx().synchronize();
    } catch (const Error& error) {
      std::abort();  // as an emulated GPU does
    }
    std::exit(0);
  };
  EXPECT_EXIT(run(), testing::KilledBySignal(SIGABRT), "");
}

// ---- under load: on a real GPU ------------------------------------------------------------------

class CudaCaptureLoadTest : public CudaCaptureTest {
 protected:
  static constexpr int kRuns = 1000, kLogged = 100;

  // Few rows, dozens, hundreds: each takes other kernels of attention and of the dense product.
  static std::vector<ChainSizes> all_sizes() {
    return {{.rows = 1, .heads = 16, .keys = 4000},
            {.rows = 24, .heads = 16, .keys = 1000},
            {.rows = 300, .heads = 16, .keys = 1000}};
  }
  // The products that use counters or flags, wherever they can run; "": the usual choice.
  void for_all_kernels(const std::function<void()>& test) {
    for (const char* kernel : {"", "cuda.panels", "cuda.wide", "cuda.mma"}) {
      SCOPED_TRACE(kernel);
      for (Context* each : {&ctx(), &other()}) {
        cuda::force_linear_kernel(*each, kernel, cuda::Forced::where_it_can);
      }
      test();
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, CudaCaptureLoadTest, testing::Values(Device::cuda()),
                         device_name);

TEST_P(CudaCaptureLoadTest, AThousandLaunchesWithChangingInputs) {
  for_all_kernels([&] {
    for (const ChainSizes& sizes : all_sizes()) {
      const OpChain chain(ctx(), sizes, 11);
      const CapturedGraph graph = graph_of(ctx(), chain);
      ResultLog log(chain, kLogged, GetParam());
      for (int run = 0; run < kRuns; ++run) {
        const int input = run * 7 % OpChain::kInputs;
        chain.set_input(ctx(), input);
        graph.launch(ctx());
        log.append(ctx(), input);
        if ((run + 1) % kLogged == 0) {
          EXPECT_EQ(log.differing(ctx()), 0) << sizes.rows << " rows, run " << run;
        }
      }
      expect_zeros(graph);
    }
  });
}

// Two graphs of one Context at once, and a graph beside the ops of its Context: on two streams.
TEST_P(CudaCaptureLoadTest, GraphsRunBesideEachOtherAndBesideOps) {
  for_all_kernels([&] {
    for (const ChainSizes& sizes : all_sizes()) {
      const OpChain here(ctx(), sizes, 12), there(ctx(), sizes, 13);
      const CapturedGraph graph_here = graph_of(ctx(), here), graph_there = graph_of(ctx(), there);
      ctx().synchronize();
      for (const bool ops : {false, true}) {
        ResultLog log_here(here, kLogged, GetParam()), log_there(there, kLogged, GetParam());
        for (int run = 0; run < kRuns / 2; ++run) {
          const int input = run * 3 % OpChain::kInputs;
          here.set_input(ctx(), input);
          there.set_input(other(), input);
          if (ops) {
            here.run(ctx());
          } else {
            graph_here.launch(ctx());
          }
          graph_there.launch(other());
          log_here.append(ctx(), input);
          log_there.append(other(), input);
          if ((run + 1) % kLogged == 0) {
            EXPECT_EQ(log_here.differing(ctx()), 0) << sizes.rows << " rows, ops " << ops;
            EXPECT_EQ(log_there.differing(other()), 0) << sizes.rows << " rows, ops " << ops;
          }
        }
      }
      expect_zeros(graph_here);
      expect_zeros(graph_there);
    }
  });
}

}  // namespace
}  // namespace tessera::test
