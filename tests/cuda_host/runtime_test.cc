// Contexts, buffers and copies on a fake GPU.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <optional>
#include <vector>

#include "cuda/runtime/launch.h"
#include "cuda/runtime/state.h"
#include "cuda_host/fake_cuda_test.h"
#include "tessera/buffer.h"
#include "tessera/context.h"

namespace tessera::test {
namespace {

using HostRuntime = FakeCudaTest;

TEST_F(HostRuntime, AContextOwnsAStreamAndGivesItBack) {
  {
    Context ctx({.device = Device::cuda()});
    EXPECT_EQ(ctx.stream(), cuda::state_of(ctx).stream());
    EXPECT_EQ(fake::live().streams, 1);
    Context other({.device = Device::cuda()});
    EXPECT_NE(ctx.stream(), other.stream());
  }
  EXPECT_EQ(fake::live().streams, 0);
}

// matmul.cc makes the handle. Here, anything that reports its own end will do.
TEST_F(HostRuntime, TheHandleOfCublasEndsWithItsContextWhileTheDeviceIsCurrent) {
  fake::set_gpus({fake::Gpu{}, fake::Gpu{}});
  int current = -1;
  {
    Context ctx({.device = Device::cuda(1)});
    cuda::state_of(ctx).cublas_handle() =
        std::shared_ptr<void>(&current, [](void* told) { cudaGetDevice(static_cast<int*>(told)); });
  }
  EXPECT_EQ(current, 1);
  ASSERT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 0);
}

TEST_F(HostRuntime, CopiesGoThereAndBack) {
  Context ctx({.device = Device::cuda()}), host;
  for (Context* with : {&ctx, &host}) {
    std::vector<std::uint8_t> sent(1000), received(1000);
    std::iota(sent.begin(), sent.end(), std::uint8_t{7});
    const Buffer first(1000, Device::cuda()), second(1000, Device::cuda());
    copy_bytes(*with, first.data(), Device::cuda(), sent.data(), Device::cpu(), 1000);
    copy_bytes(*with, second.data(), Device::cuda(), first.data(), Device::cuda(), 1000);
    copy_bytes(*with, received.data(), Device::cpu(), second.data(), Device::cuda(), 1000);
    EXPECT_EQ(received, sent);
  }
}

TEST_F(HostRuntime, ACopyWithinTheGpuIsOnlyEnqueued) {
  Context ctx({.device = Device::cuda()});
  const Buffer a(16, Device::cuda()), b(16, Device::cuda());
  ctx.synchronize();  // what a new Context sets to zero
  const std::int64_t waits = fake::counters().waits;
  copy_bytes(ctx, a.data(), Device::cuda(), b.data(), Device::cuda(), 16);
  EXPECT_EQ(fake::counters().waits, waits);
  EXPECT_EQ(fake::queued(cuda::state_of(ctx).stream()), 1);
  ctx.synchronize();
  EXPECT_EQ(fake::counters().waits, waits + 1);
  EXPECT_EQ(fake::queued(cuda::state_of(ctx).stream()), 0);
}

TEST_F(HostRuntime, DeviceMemoryIsWhatTheDriverSays) {
  fake::set_gpus({{.memory = 1000}, {.memory = 5000}});
  const Buffer buffer(2000, Device::cuda(1));
  const DeviceMemory first = device_memory(Device::cuda(0)),
                     second = device_memory(Device::cuda(1));
  EXPECT_EQ(first.free, 1000);
  EXPECT_EQ(first.total, 1000);
  EXPECT_EQ(second.free, 3000);
  EXPECT_EQ(second.total, 5000);
}

TEST_F(HostRuntime, TooMuchMemoryIsRefusedWithFigures) {
  fake::set_gpus({{.memory = 10 << 20}});
  const Buffer held(4 << 20, Device::cuda());
  const Error error = error_of([] { Buffer buffer(8 << 20, Device::cuda()); });
  EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  EXPECT_STREQ(error.what(),
               "8.0 MiB of memory were asked for on cuda:0, of whose 10.0 MiB 6.0 are free");
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);  // no later launch is blamed for it
}

TEST_F(HostRuntime, AFailureNamesTheAttempt) {
  Context ctx({.device = Device::cuda()});
  fake::fail_once("cudaStreamSynchronize", cudaErrorInvalidValue);
  EXPECT_STREQ(error_of([&] { ctx.synchronize(); }).what(),
               "waiting for the work on cuda:0 failed: cudaErrorInvalidValue: the words of the "
               "driver");
  EXPECT_EQ(ctx.lost(), "");
  ctx.synchronize();  // the error is gone
}

TEST_F(HostRuntime, AMissingDeviceSaysWhichThereAre) {
  const Error error = error_of([] { Context ctx({.device = Device::cuda(3)}); });
  EXPECT_EQ(error.code(), ErrorCode::device);
  EXPECT_STREQ(error.what(),
               "cuda:3 cannot be used (cudaErrorInvalidDevice: the words of the driver): 1 of 1 "
               "NVIDIA GPUs can be used");
}

}  // namespace
}  // namespace tessera::test
