// The CUDA runtime: what it says without a GPU, and, with one, memory, copies, streams and errors.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <regex>
#include <string>
#include <vector>

#include "core/workspace.h"
#include "reference/norm.h"
#include "reference/softmax.h"
#include "reference/test_tensor.h"
#include "support/compare.h"
#include "support/devices.h"
#include "tessera/buffer.h"
#include "tessera/context.h"
#include "tessera/norm.h"
#include "tessera/softmax.h"

namespace tessera::test {
namespace {

// All of the text.
bool matches(const std::string& text, const std::string& pattern) {
  return std::regex_match(text, std::regex(pattern));
}

Error error_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode::invalid_argument, "nothing was thrown");
}

// ---- with and without a GPU ---------------------------------------------------------------------

TEST(CudaQueries, TheCpuIsListedFirstAndTheStatusIsASentence) {
  EXPECT_TRUE(devices().front().device.is_cpu());
  EXPECT_TRUE(matches(cuda_status(), ".*(GPU|driver|CUDA).*")) << cuda_status();
}

TEST(CudaQueries, AContextOnAMissingDeviceSaysWhy) {
  const Error error = error_of([] { Context ctx({.device = Device::cuda(99)}); });
  EXPECT_EQ(error.code(), ErrorCode::device);
  EXPECT_TRUE(matches(error.what(), R"(cuda:99 cannot be used \(cudaError\w+: .*\): .*)"))
      << error.what();
  EXPECT_NE(std::string(error.what()).find(cuda_status()), std::string::npos) << error.what();
}

TEST(CudaQueries, ABufferOnAMissingDeviceSaysWhy) {
  const Error error = error_of([] { Buffer buffer(16, Device::cuda(99)); });
  EXPECT_EQ(error.code(), ErrorCode::device);
  EXPECT_TRUE(matches(error.what(), R"(cuda:99 cannot be used \(cudaError\w+: .*\): .*)"))
      << error.what();
}

// ---- with a GPU ---------------------------------------------------------------------------------

class CudaRuntimeTest : public DeviceTest {
 protected:
  cudaStream_t stream() { return static_cast<cudaStream_t>(ctx().stream()); }
};
INSTANTIATE_TEST_SUITE_P(Devices, CudaRuntimeTest, testing::Values(Device::cuda()), device_name);

std::vector<std::uint8_t> some_bytes(std::int64_t count) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 7 + 3);
  return bytes;
}

TEST_P(CudaRuntimeTest, TheDeviceIsDescribed) {
  const DeviceInfo gpu = devices().at(1);
  EXPECT_EQ(gpu.device, Device::cuda(0));
  EXPECT_FALSE(gpu.name.empty());
  EXPECT_TRUE(matches(gpu.capability, R"(\d+\.\d)")) << gpu.capability;
  EXPECT_GT(gpu.memory_bytes, std::int64_t{1} << 30);
  EXPECT_GT(gpu.compute_units, 0);
  EXPECT_EQ(gpu.unusable, "");
  EXPECT_TRUE(matches(cuda_status(), R"(\d of \d NVIDIA GPUs can be used.*)")) << cuda_status();
  const DeviceMemory memory = device_memory(GetParam());
  EXPECT_GT(memory.free, 0);
  EXPECT_LE(memory.free, memory.total);
  const CudaInfo cuda = cuda_info();
  EXPECT_TRUE(matches(cuda.toolkit, R"(\d+\.\d+)")) << cuda.toolkit;
  EXPECT_TRUE(matches(cuda.driver_cuda, R"(\d+\.\d+)")) << cuda.driver_cuda;
}

TEST_P(CudaRuntimeTest, CopiesGoThereAndBack) {
  Context host;  // without a stream of its own
  for (Context* with : {&ctx(), &host}) {
    for (std::int64_t size :
         {std::int64_t{1}, std::int64_t{3}, std::int64_t{4096}, (std::int64_t{10} << 20) + 1}) {
      const std::vector<std::uint8_t> sent = some_bytes(size);
      std::vector<std::uint8_t> received(sent.size());
      const Buffer first(size, GetParam()), second(size, GetParam());
      copy_bytes(*with, first.data(), GetParam(), sent.data(), Device::cpu(), size);
      copy_bytes(*with, second.data(), GetParam(), first.data(), GetParam(), size);
      copy_bytes(*with, received.data(), Device::cpu(), second.data(), GetParam(), size);
      EXPECT_EQ(received, sent);
    }
  }
}

TEST_P(CudaRuntimeTest, BuffersAreAligned) {
  for (std::int64_t size : {1, 100, 1000}) {
    const Buffer buffer(size, GetParam());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % Buffer::kAlignment, 0u);
  }
}

TEST_P(CudaRuntimeTest, TheWorkspaceLivesOnTheDevice) {
  Workspace::Frame frame(ctx().workspace());
  const Tensor scratch = frame.take(DType::f32, {1000});
  EXPECT_EQ(scratch.device, GetParam());
  cudaPointerAttributes attributes;
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, scratch.data), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
}

TEST_P(CudaRuntimeTest, EveryContextHasAStreamOfItsOwnThatBlocksNobody) {
  const auto other = context(1);
  EXPECT_NE(ctx().stream(), other->stream());
  unsigned flags = 0;
  ASSERT_EQ(cudaStreamGetFlags(stream(), &flags), cudaSuccess);
  EXPECT_EQ(flags, static_cast<unsigned>(cudaStreamNonBlocking));
}

TEST_P(CudaRuntimeTest, TooMuchMemoryIsRefusedWithFigures) {
  const Error error = error_of([&] { Buffer buffer(std::int64_t{1} << 50, GetParam()); });
  EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  EXPECT_TRUE(matches(error.what(), R"(1073741824\.0 MiB of memory were asked for on cuda:0, )"
                                    R"(of whose \d+\.\d MiB \d+\.\d are free)"))
      << error.what();
  // The failure is over: the next call works.
  const Buffer small(16, GetParam());
  ctx().synchronize();
}

// Waiting inside a capture is the one failure that a healthy device can produce.
TEST_P(CudaRuntimeTest, AFailureNamesTheAttempt) {
  std::vector<std::uint8_t> host(16);
  const Buffer buffer(16, GetParam());
  const auto in_capture = [&](const std::function<void()>& fn) {
    EXPECT_EQ(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
    const Error error = error_of(fn);
    cudaGraph_t graph = nullptr;
    EXPECT_NE(cudaStreamEndCapture(stream(), &graph), cudaSuccess);
    cudaGetLastError();
    EXPECT_EQ(error.code(), ErrorCode::device);
    return std::string(error.what());
  };
  const std::string copying = in_capture(
      [&] { copy_bytes(ctx(), host.data(), Device::cpu(), buffer.data(), GetParam(), 16); });
  EXPECT_TRUE(matches(copying, R"(copying 16 bytes from cuda:0 to cpu failed: cudaError\w+: .*)"))
      << copying;
  const std::string waiting = in_capture([&] { ctx().synchronize(); });
  EXPECT_TRUE(matches(waiting, R"(waiting for the work on cuda:0 failed: cudaError\w+: .*)"))
      << waiting;
  ctx().synchronize();  // and it is over
}

// No op does anything on the host that a graph forbids: no waiting, no allocation, no other stream.
TEST_P(CudaRuntimeTest, OpsAreCapturedInAGraph) {
  ctx().trace().enable(false);  // timing an op means waiting for it
  const Array values = random_normal({5, 113}, 1), more = random_normal({5, 113}, 2);
  TestTensor x(ctx(), values, DType::f32), weight(ctx(), Array({113}, 1.0), DType::f32);
  const TestTensor replacement(ctx(), more, DType::f32);
  const TestTensor normal = TestTensor::poisoned(ctx(), {5, 113}, DType::f32);
  const TestTensor out = TestTensor::poisoned(ctx(), {5, 113}, DType::f32);

  cudaGraph_t graph;
  ASSERT_EQ(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeGlobal), cudaSuccess);
  rms_norm(ctx(), {.x = x, .weight = weight, .out = normal});
  softmax(ctx(), {.x = normal, .out = out});
  ASSERT_EQ(cudaStreamEndCapture(stream(), &graph), cudaSuccess);
  EXPECT_TRUE(out.untouched());
  cudaGraphExec_t executable;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);

  copy_bytes(ctx(), x.view().data, GetParam(), replacement.view().data, GetParam(),
             x.view().bytes());
  ASSERT_EQ(cudaGraphLaunch(executable, stream()), cudaSuccess);
  const Array expected =
      reference::softmax(reference::rms_norm(replacement.read(), weight.read(), 1e-5), 1.0);
  EXPECT_TRUE(close(out.read(), expected, 1e-5, 1e-7));
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

}  // namespace
}  // namespace tessera::test
