// An error inside an op reaches the user with the op's name and shapes. A GPU fault ends the
// Context on which it shows, and nothing else.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/workspace.h"
#include "cuda/runtime/errors.h"
#include "cuda/runtime/launch.h"
#include "cuda_host/fake_cuda_test.h"
#include "ops/op_scope.h"
#include "tessera/buffer.h"
#include "tessera/context.h"
#include "tessera/kv_cache.h"

namespace tessera::test {
namespace {

// Runs a kernel as every op does.
void op(Context& ctx, const std::function<void()>& kernel) {
  const OpScope op(ctx, "double");
  op.run([&] { return std::string("x f32[2, 3]"); },
         [&] {
           kernel();
           return "cuda";
         },
         [] { return OpCost{}; });
}

void double_rows(int) {}

void launch(Context& ctx) {
  op(ctx,
     [&] { cuda::Launch(ctx, "double_rows")(double_rows, {.blocks = 1, .threads = dim3(32)}, 3); });
}

using HostOpErrors = FakeContextTest;

TEST_F(HostOpErrors, ARefusedLaunchNamesTheOpAndItsShapes) {
  launch(*ctx_);
  fake::fail_once("cudaLaunchKernel", cudaErrorInvalidValue);
  const Error error = error_of([&] { launch(*ctx_); });
  EXPECT_EQ(error.code(), ErrorCode::device);
  EXPECT_STREQ(
      error.what(),
      "double (x f32[2, 3]): launching double_rows failed: cudaErrorInvalidValue: the words "
      "of the driver");
  launch(*ctx_);  // the error is gone
}

// Of another library, or of the program's own CUDA calls.
TEST_F(HostOpErrors, AnOlderErrorOfSomebodyElseIsNotBlamedOnALaunch) {
  void* data = nullptr;
  fake::fail_once("cudaMalloc", cudaErrorMemoryAllocation);
  ASSERT_EQ(cudaMalloc(&data, 16), cudaErrorMemoryAllocation);
  EXPECT_NO_THROW(launch(*ctx_));
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);  // it is still theirs to ask for
}

// A kernel that wants much shared memory must be allowed it. A failure to do so is tried again.
TEST_F(HostOpErrors, AKernelThatWasNotAllowedItsSharedMemoryIsAllowedItLater) {
  const auto launch_large = [&] {
    op(*ctx_, [&] {
      cuda::Launch(*ctx_, "double_rows")(
          double_rows, {.blocks = 1, .threads = dim3(32), .shared_bytes = 100 << 10}, 3);
    });
  };
  for (const char* call : {"cudaFuncGetAttributes", "cudaFuncSetAttribute"}) {
    fake::fail_once(call, cudaErrorInvalidValue);
    EXPECT_EQ(std::string(error_of(launch_large).what()).find("double (x f32[2, 3]): launching"),
              0u);
    EXPECT_EQ(fake::counters().attributes, 0);
  }
  launch_large();
  launch_large();
  EXPECT_EQ(fake::counters().attributes, 1);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(HostOpErrors, SoDoesWantOfMemoryInTheWorkspace) {
  fake::set_gpus({{.memory = 1 << 20}});
  const Error error = error_of([&] {
    op(*ctx_, [&] {
      Workspace::Frame frame(ctx_->workspace());
      frame.take<char>(2 << 20);
    });
  });
  EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  EXPECT_EQ(std::string(error.what()).find("double (x f32[2, 3]): 2.0 MiB"), 0u) << error.what();
}

TEST_F(HostOpErrors, ARefusalOfTheOpItselfAndAnErrorOfAnOpInsideStayAsTheyAre) {
  const Error refusal =
      error_of([&] { op(*ctx_, [&] { OpScope(*ctx_, "inner").refuse("it is {}", 3); }); });
  EXPECT_EQ(refusal.code(), ErrorCode::invalid_argument);
  EXPECT_STREQ(refusal.what(), "inner: it is 3");
  fake::fail_once("cudaLaunchKernel", cudaErrorInvalidValue);
  const Error nested = error_of([&] { op(*ctx_, [&] { launch(*ctx_); }); });
  EXPECT_EQ(std::string(nested.what()).find("double (x f32[2, 3]): launching"), 0u);
}

// ---- faults -------------------------------------------------------------------------------------

class HostFaults : public HostOpErrors {
 protected:
  HostFaults() { expect_no_leaks_ = false; }
};

constexpr const char* kLost =
    "cuda:0: double (x f32[2, 3]): launching double_rows failed: cudaErrorIllegalAddress: the "
    "words "
    "of the driver (in it or in work before it); GPU work of this process is lost: use the CPU, or "
    "start the program again";

TEST_F(HostFaults, AFaultEndsTheContextWithOneSentenceForEveryLaterOp) {
  const Buffer buffer(16, Device::cuda());
  EXPECT_EQ(ctx_->lost(), "");
  fake::lose_gpus(cudaErrorIllegalAddress);
  EXPECT_STREQ(error_of([&] { launch(*ctx_); }).what(), kLost);
  EXPECT_EQ(ctx_->lost(), kLost);
  bool ran = false;
  char host[16];
  for (const std::function<void()>& later : std::initializer_list<std::function<void()>>{
           [&] { op(*ctx_, [&] { ran = true; }); }, [&] { ctx_->synchronize(); },
           [&] { copy_bytes(*ctx_, host, Device::cpu(), buffer.data(), Device::cuda(), 16); }}) {
    const Error error = error_of(later);
    EXPECT_EQ(error.code(), ErrorCode::device);
    EXPECT_STREQ(error.what(), kLost);
  }
  EXPECT_FALSE(ran);
}

TEST_F(HostFaults, AFaultThatShowsInWaitingOrCopyingEndsTheContextToo) {
  const Buffer buffer(16, Device::cuda());
  char host[16];
  Context other({.device = Device::cuda()});
  fake::lose_gpus(cudaErrorLaunchFailure);
  const Error waiting = error_of([&] { ctx_->synchronize(); });
  EXPECT_EQ(std::string(waiting.what()).find("cuda:0: waiting for the work on cuda:0 failed: "), 0u)
      << waiting.what();
  EXPECT_EQ(ctx_->lost(), waiting.what());
  EXPECT_STREQ(error_of([&] { launch(*ctx_); }).what(), waiting.what());

  const Error copying =
      error_of([&] { copy_bytes(other, host, Device::cpu(), buffer.data(), Device::cuda(), 16); });
  EXPECT_EQ(std::string(copying.what()).find("cuda:0: copying 16 bytes from cuda:0 to cpu"), 0u)
      << copying.what();
  EXPECT_EQ(other.lost(), copying.what());
}

TEST_F(HostFaults, WithTracingOnTheOpThatWaitedIsNamed) {
  ctx_->trace().enable();
  fake::fail_always("cudaStreamSynchronize", cudaErrorAssert);
  EXPECT_EQ(std::string(error_of([&] { launch(*ctx_); }).what())
                .find("cuda:0: double (x f32[2, 3]): waiting for the work on cuda:0 failed: "),
            0u);
}

TEST_F(HostFaults, WhatLivesOnTheGpuEndsQuietly) {
  std::optional<Buffer> buffer;
  buffer.emplace(16, Device::cuda());
  std::optional<KvCache> cache;
  cache.emplace(*ctx_, KvCacheOptions{.layers = 1, .kv_heads = 1, .head_dim = 64, .max_tokens = 8});
  {
    Workspace::Frame frame(ctx_->workspace());
    frame.take<char>(16);
  }
  fake::lose_gpus(cudaErrorIllegalAddress);
  const std::int32_t id = 1;
  EXPECT_NE(std::string(error_of([&] {
                          (void)cache->step(*ctx_, {&id, 1});
                        }).what())
                .find("is lost"),
            std::string::npos);
  fake::fail_always("cudaGetDevice", cudaErrorIllegalAddress);
  EXPECT_NO_THROW(cache.reset());
  EXPECT_NO_THROW(buffer.reset());
  EXPECT_NO_THROW(ctx_.reset());
}

TEST_F(HostFaults, NewWorkOnTheGpuIsRefusedWithTheReasonAndTheCpuGoesOn) {
  fake::lose_gpus(cudaErrorIllegalAddress);
  const std::function<void()> attempts[] = {[] { Context ctx({.device = Device::cuda()}); },
                                            [] { Buffer buffer(16, Device::cuda()); },
                                            [] { (void)device_memory(Device::cuda()); }};
  for (const auto& attempt : attempts) {
    const std::string text = error_of(attempt).what();
    EXPECT_NE(text.find("cudaErrorIllegalAddress"), std::string::npos) << text;
    EXPECT_NE(text.find("cuda:0"), std::string::npos) << text;
    EXPECT_NE(text.find("is lost: use the CPU, or start the program again"), std::string::npos)
        << text;
  }
  EXPECT_FALSE(devices().at(1).usable());

  Context cpu;
  const Buffer from(16), to(16), gone;
  op(cpu, [] {});
  copy_bytes(cpu, to.data(), Device::cpu(), from.data(), Device::cpu(), 16);
  cpu.synchronize();
  EXPECT_EQ(cpu.lost(), "");
}

// A CPU Context may copy bytes to and from a GPU. It does not end when the GPU is lost.
TEST_F(HostFaults, ACpuContextThatMeetsTheFaultGoesOn) {
  const Buffer buffer(16, Device::cuda());
  char host[16];
  Context cpu;
  fake::lose_gpus(cudaErrorIllegalAddress);
  const Error error =
      error_of([&] { copy_bytes(cpu, host, Device::cpu(), buffer.data(), Device::cuda(), 16); });
  EXPECT_NE(std::string(error.what()).find("is lost"), std::string::npos) << error.what();
  EXPECT_EQ(cpu.lost(), "");
  op(cpu, [] {});
}

TEST_F(HostFaults, AFaultBehindALibrarysErrorIsFound) {
  cuda::check_not_lost("cuBLASLt: multiplying");
  fake::lose_gpus(cudaErrorIllegalAddress);
  EXPECT_EQ(std::string(error_of([&] {
                          op(*ctx_, [] { cuda::check_not_lost("cuBLASLt: multiplying"); });
                        }).what())
                .find("cuda:0: double (x f32[2, 3]): cuBLASLt: multiplying failed: "),
            0u);
}

TEST(CudaErrors, FaultsEndGpuWorkAndRefusalsDoNot) {
  for (const cudaError_t fault :
       {cudaErrorIllegalAddress, cudaErrorLaunchFailure, cudaErrorAssert, cudaErrorLaunchTimeout,
        cudaErrorHardwareStackError, cudaErrorIllegalInstruction, cudaErrorMisalignedAddress,
        cudaErrorInvalidAddressSpace, cudaErrorInvalidPc, cudaErrorECCUncorrectable}) {
    EXPECT_TRUE(cuda::ends_gpu_work(fault)) << fault;
  }
  for (const cudaError_t refusal :
       {cudaSuccess, cudaErrorMemoryAllocation, cudaErrorInvalidValue,
        cudaErrorInvalidConfiguration, cudaErrorNoKernelImageForDevice,
        cudaErrorLaunchOutOfResources, cudaErrorNotReady, cudaErrorStreamCaptureUnsupported}) {
    EXPECT_FALSE(cuda::ends_gpu_work(refusal)) << refusal;
  }
}

}  // namespace
}  // namespace tessera::test
