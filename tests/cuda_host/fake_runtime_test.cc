// Tests the fake CUDA runtime itself, which the other tests here rely on.
#include "cuda_host/fake_runtime.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace tessera::test {
namespace {

class FakeRuntime : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset();
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&device_, 16), cudaSuccess);
    ASSERT_EQ(cudaMallocHost(&pinned_, 16), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaFree(device_), cudaSuccess);
    EXPECT_EQ(cudaFreeHost(pinned_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    EXPECT_EQ(fake::live(), fake::Live{});
  }
  cudaError_t upload(const void* from) {
    return cudaMemcpyAsync(device_, from, 16, cudaMemcpyHostToDevice, stream_);
  }
  std::string on_device() const { return {static_cast<const char*>(device_), 16}; }

  cudaStream_t stream_ = nullptr;
  void *device_ = nullptr, *pinned_ = nullptr;
};

TEST_F(FakeRuntime, APinnedBufferThatIsUsedAgainTooEarlyShowsAsWrongBytes) {
  std::memset(pinned_, 'a', 16);
  ASSERT_EQ(upload(pinned_), cudaSuccess);
  EXPECT_EQ(fake::queued(stream_), 1);
  std::memset(pinned_, 'b', 16);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(on_device(), std::string(16, 'b'));
}

TEST_F(FakeRuntime, PageableMemoryIsTakenAtOnceAndWrittenBeforeTheCallReturns) {
  std::string host(16, 'a');
  ASSERT_EQ(upload(host.data()), cudaSuccess);
  host.assign(16, 'b');
  EXPECT_NE(on_device(), std::string(16, 'a'));
  ASSERT_EQ(cudaMemcpyAsync(host.data(), device_, 16, cudaMemcpyDeviceToHost, stream_),
            cudaSuccess);
  EXPECT_EQ(host, std::string(16, 'a'));
  EXPECT_EQ(fake::counters().waits, 0);
  EXPECT_EQ(fake::counters().hidden_waits, 1);
}

// Blocks that were not freed go back to the heap. Their pages are not unmapped under their
// neighbours.
TEST(FakeReset, LeavesTheHeapWhole) {
  fake::reset();
  std::vector<std::string> neighbours;
  for (int i = 0; i < 256; ++i) {
    void* forgotten = nullptr;
    ASSERT_EQ(cudaMalloc(&forgotten, 3000), cudaSuccess);
    neighbours.emplace_back(2000, 'n');
  }
  fake::reset();
  for (const std::string& neighbour : neighbours) EXPECT_EQ(neighbour, std::string(2000, 'n'));
}

TEST_F(FakeRuntime, AnEventWaitsForWhatIsBeforeItAlone) {
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  std::memset(pinned_, 'a', 16);
  ASSERT_EQ(upload(pinned_), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
  ASSERT_EQ(upload(pinned_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  ASSERT_EQ(cudaEventSynchronize(event), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(fake::queued(stream_), 1);
  EXPECT_EQ(on_device(), std::string(16, 'a'));
  ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(FakeRuntime, AStreamWaitsForAnEventOfAnother) {
  cudaStream_t other = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  ASSERT_EQ(upload(pinned_), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other, event, 0), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  EXPECT_EQ(fake::queued(stream_), 0);
  ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

TEST_F(FakeRuntime, AnErrorIsForgottenOnceItWasTold) {
  fake::fail_once("cudaMalloc", cudaErrorMemoryAllocation);
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, 16), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&data, 16), cudaSuccess);
  ASSERT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(FakeRuntime, WrongPointersAreRefused) {
  std::string host(16, 'a');
  EXPECT_EQ(cudaMemcpyAsync(host.data(), pinned_, 16, cudaMemcpyHostToDevice, stream_),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(device_, host.data(), 17, cudaMemcpyHostToDevice, stream_),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(pinned_), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace tessera::test
