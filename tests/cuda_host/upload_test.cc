// Uploads on streams that do nothing until someone waits for them. A slot that is reused too early,
// or host memory that is read too late, shows as wrong bytes every time.
#include "cuda/runtime/upload.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "cuda/runtime/state.h"
#include "cuda_host/fake_cuda_test.h"
#include "tessera/buffer.h"
#include "tessera/context.h"

namespace tessera::test {
namespace {

using cuda::Uploader;
constexpr std::int64_t kSmall = Uploader::kSmallBytes, kChunk = Uploader::kChunkBytes;
constexpr int kSlots = Uploader::kSmallSlots;
constexpr int kCallsPerSend = 2;  // a copy and an event

class UploadTest : public FakeCudaTest {
 protected:
  void SetUp() override {
    FakeCudaTest::SetUp();
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    void* data = nullptr;
    ASSERT_EQ(cudaMalloc(&data, static_cast<std::size_t>(kRoom)), cudaSuccess);
    gpu_ = static_cast<std::uint8_t*>(data);
  }
  void TearDown() override {
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    EXPECT_EQ(cudaFree(gpu_), cudaSuccess);
    FakeCudaTest::TearDown();
  }

  // Different bytes for each seed.
  static std::vector<std::uint8_t> bytes_of(std::int64_t count, std::uint32_t seed) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
    std::uint32_t state = seed * 2654435761u + 1;
    for (std::uint8_t& byte : bytes) {
      state = state * 1664525u + 1013904223u;
      byte = static_cast<std::uint8_t>(state >> 24);
    }
    return bytes;
  }
  // Uploads to the GPU at `at`. The host memory is overwritten as soon as the call has returned.
  void upload(Uploader& uploader, std::int64_t at, std::vector<std::uint8_t> bytes) {
    uploader.copy(gpu_ + at, bytes.data(), std::ssize(bytes));
    std::fill(bytes.begin(), bytes.end(), std::uint8_t{0xff});
  }
  testing::AssertionResult holds(std::int64_t at, const std::vector<std::uint8_t>& expected) {
    const auto [found, wanted] = std::mismatch(gpu_ + at, gpu_ + at + std::ssize(expected),
                                               expected.begin(), expected.end());
    if (wanted == expected.end()) return testing::AssertionSuccess();
    return testing::AssertionFailure()
           << "byte " << wanted - expected.begin() << " of " << expected.size() << " is " << +*found
           << ", not " << +*wanted;
  }
  void finish() { ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess); }

  static constexpr std::int64_t kRoom = 6 * kChunk;
  cudaStream_t stream_ = nullptr;
  std::uint8_t* gpu_ = nullptr;
  ThreadPool pool_{3};
};

TEST_F(UploadTest, BytesOfEverySizeArriveAndNothingBesideThem) {
  Uploader uploader(Device::cuda(), stream_, pool_);
  std::uint32_t seed = 0;
  for (const std::int64_t size :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{3}, std::int64_t{4097}, kSmall - 1, kSmall,
        kSmall + 1, kChunk - 1, kChunk, kChunk + 1, 2 * kChunk, 4 * kChunk + 12345}) {
    std::memset(gpu_, 0xee, static_cast<std::size_t>(size) + 2);
    const std::vector<std::uint8_t> bytes = bytes_of(size, ++seed);
    upload(uploader, 1, bytes);
    finish();
    EXPECT_TRUE(holds(1, bytes)) << size;
    EXPECT_EQ(gpu_[0], 0xee) << size;
    EXPECT_EQ(gpu_[size + 1], 0xee) << size;
  }
}

TEST_F(UploadTest, NoSlotReachesIntoTheNext) {
  Uploader uploader(Device::cuda(), stream_, pool_);
  for (const std::int64_t largest : {kSmall, kChunk}) {
    std::int64_t at = 0;
    for (const std::int64_t size : {largest, largest + 1, largest, largest - 1}) {
      upload(uploader, at, bytes_of(size, static_cast<std::uint32_t>(size)));
      at += size;
    }
    finish();
    at = 0;
    for (const std::int64_t size : {largest, largest + 1, largest, largest - 1}) {
      EXPECT_TRUE(holds(at, bytes_of(size, static_cast<std::uint32_t>(size))));
      at += size;
    }
  }
}

TEST_F(UploadTest, SmallUploadsWaitForNothingWhileTheRingHasRoom) {
  Uploader uploader(Device::cuda(), stream_, pool_);
  for (int i = 0; i < kSlots; ++i) upload(uploader, i * kSmall, bytes_of(kSmall, 7));
  EXPECT_EQ(fake::queued(stream_), kCallsPerSend * kSlots);  // none of it has run
  // The next one waits only for the oldest.
  upload(uploader, 0, bytes_of(5, 8));
  EXPECT_EQ(fake::queued(stream_), kCallsPerSend * kSlots);
  // A step of a model ends with its logits on the host, so the ring is free again.
  finish();
  for (int i = 0; i < kSlots; ++i) upload(uploader, i * kSmall, bytes_of(kSmall, 9));
  EXPECT_EQ(fake::queued(stream_), kCallsPerSend * kSlots);
}

TEST_F(UploadTest, ASlotIsUsedAgainOnlyWhenItsBytesHaveLeft) {
  Uploader uploader(Device::cuda(), stream_, pool_);
  const auto size = [](int i) { return std::int64_t{1} + i * 37 % 1000; };
  constexpr int kUploads = 10 * kSlots + 3;
  for (int i = 0; i < kUploads; ++i) {
    upload(uploader, i * 1024, bytes_of(size(i), static_cast<std::uint32_t>(i)));
  }
  finish();
  for (int i = 0; i < kUploads; ++i) {
    EXPECT_TRUE(holds(i * 1024, bytes_of(size(i), static_cast<std::uint32_t>(i)))) << i;
  }
}

TEST_F(UploadTest, ALargeUploadReturnsWithItsLastChunksOnTheWay) {
  Uploader uploader(Device::cuda(), stream_, pool_);
  const std::vector<std::uint8_t> bytes = bytes_of(5 * kChunk + 1, 3);
  upload(uploader, 0, bytes);
  EXPECT_EQ(fake::counters().copies, 6);
  EXPECT_EQ(fake::queued(stream_), kCallsPerSend * Uploader::kChunkSlots);
  finish();
  EXPECT_TRUE(holds(0, bytes));
}

TEST_F(UploadTest, SmallAndLargeUploadsKeepTheOrderOfTheStream) {
  Uploader uploader(Device::cuda(), stream_, pool_);
  std::vector<std::uint8_t> expected = bytes_of(2 * kChunk, 100);
  for (std::uint32_t round = 0; round < 3; ++round) {
    // Each upload overwrites a part of the one before.
    for (const auto& [at, size] : {std::pair{std::int64_t{10}, std::int64_t{1000}},
                                   {std::int64_t{0}, kChunk + 7},
                                   {kChunk - 3, std::int64_t{6}},
                                   {std::int64_t{500}, kSmall + 1},
                                   {std::int64_t{499}, std::int64_t{2}},
                                   {std::int64_t{0}, 2 * kChunk},
                                   {2 * kChunk - 1, std::int64_t{1}}}) {
      const std::vector<std::uint8_t> bytes =
          bytes_of(size, round * 1000 + static_cast<std::uint32_t>(at + size));
      upload(uploader, at, bytes);
      std::copy(bytes.begin(), bytes.end(), expected.begin() + at);
    }
  }
  finish();
  EXPECT_TRUE(holds(0, expected));
}

TEST_F(UploadTest, PinnedMemoryIsTakenOnceByTheFirstUploadThatNeedsIt) {
  {
    Uploader uploader(Device::cuda(), stream_, pool_);
    EXPECT_EQ(fake::live().host_bytes, 0);
    for (int i = 0; i < 3 * kSlots; ++i) upload(uploader, 0, bytes_of(9, 1));
    EXPECT_EQ(fake::counters().host_allocations, 1);
    EXPECT_EQ(fake::live().host_bytes, kSlots * kSmall);
    for (int i = 0; i < 3; ++i) upload(uploader, 0, bytes_of(2 * kChunk, 1));
    EXPECT_EQ(fake::counters().host_allocations, 2);
    EXPECT_EQ(fake::live().host_bytes, kSlots * kSmall + Uploader::kChunkSlots * kChunk);
    EXPECT_EQ(fake::live().events, kSlots + Uploader::kChunkSlots);
  }
  EXPECT_EQ(fake::live().host_bytes, 0);
  EXPECT_EQ(fake::live().events, 0);
}

TEST_F(UploadTest, ItEndsWhenItsCopiesHaveLeft) {
  const std::vector<std::uint8_t> small = bytes_of(77, 1), large = bytes_of(kChunk + 1, 2);
  std::int64_t waits = 0;
  {
    Uploader uploader(Device::cuda(), stream_, pool_);
    upload(uploader, 0, small);
    upload(uploader, 100, large);
    waits = fake::counters().waits;
  }
  EXPECT_GT(fake::counters().waits, waits);  // it did not leave the wait to cudaFreeHost
  EXPECT_EQ(fake::queued(stream_), 0);
  EXPECT_TRUE(holds(0, small));
  EXPECT_TRUE(holds(100, large));
}

TEST_F(UploadTest, MemoryThatCannotBePinnedIsNamedAndTheNextUploadTriesAgain) {
  Uploader uploader(Device::cuda(), stream_, pool_);
  fake::fail_once("cudaMallocHost", cudaErrorMemoryAllocation);
  const Error error = error_of([&] { upload(uploader, 0, bytes_of(kChunk, 1)); });
  EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  EXPECT_EQ(std::string(error.what()),
            "uploads to cuda:0 pass through 24 MiB of pinned host memory, which could not be "
            "allocated: free host memory, or raise what the process may lock (ulimit -l)");
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  upload(uploader, 0, bytes_of(kChunk, 1));
  finish();
  EXPECT_TRUE(holds(0, bytes_of(kChunk, 1)));
}

TEST_F(UploadTest, AFailureLeavesNothingBehindAndTheRingInOrder) {
  Uploader uploader(Device::cuda(), stream_, pool_);
  fake::fail_once("cudaEventCreateWithFlags", cudaErrorInvalidValue);
  EXPECT_EQ(error_of([&] { upload(uploader, 0, bytes_of(9, 1)); }).code(), ErrorCode::device);
  EXPECT_EQ(fake::live().host_blocks, 0);
  EXPECT_EQ(fake::live().events, 0);

  upload(uploader, 0, bytes_of(9, 1));
  fake::fail_once("cudaMemcpyAsync", cudaErrorInvalidValue);
  const Error error = error_of([&] { upload(uploader, 20, bytes_of(9, 2)); });
  EXPECT_NE(std::string(error.what()).find("copying 9 bytes from cpu to cuda:0 failed"),
            std::string::npos)
      << error.what();
  upload(uploader, 40, bytes_of(9, 3));
  finish();
  EXPECT_TRUE(holds(0, bytes_of(9, 1)));
  EXPECT_TRUE(holds(40, bytes_of(9, 3)));
}

// ---- through a Context --------------------------------------------------------------------------

using ContextUpload = FakeCudaTest;

TEST_F(ContextUpload, StepsOfAModelUploadAndReadBackInOrderWithoutWaitingBetween) {
  Context ctx({.device = Device::cuda(), .threads = 2});
  const Buffer id(4, Device::cuda()), seen(4 * kSlots, Device::cuda());
  std::vector<std::int32_t> expected, read(kSlots);
  ctx.synchronize();  // what a new Context sets to zero
  for (std::int32_t step = 0; step < kSlots; ++step) {
    std::int32_t value = 100 + step;
    copy_bytes(ctx, id.data(), Device::cuda(), &value, Device::cpu(), 4);
    value = -1;
    copy_bytes(ctx, static_cast<char*>(seen.data()) + 4 * step, Device::cuda(), id.data(),
               Device::cuda(), 4);
    expected.push_back(100 + step);
  }
  EXPECT_EQ(fake::queued(cuda::state_of(ctx).stream()), (kCallsPerSend + 1) * kSlots);
  EXPECT_EQ(fake::counters().hidden_waits, 0);
  EXPECT_EQ(fake::counters().default_stream, 0);
  copy_bytes(ctx, read.data(), Device::cpu(), seen.data(), Device::cuda(), seen.bytes());
  EXPECT_EQ(read, expected);
}

TEST_F(ContextUpload, EachContextHasPinnedMemoryOfItsOwnAndGivesItBack) {
  const Buffer small(4, Device::cuda()), large(kChunk, Device::cuda());
  const std::vector<char> bytes(static_cast<std::size_t>(kChunk), 'a');
  {
    Context one({.device = Device::cuda(), .threads = 1}), two({.device = Device::cuda()});
    for (Context* ctx : {&one, &two}) {
      copy_bytes(*ctx, small.data(), Device::cuda(), bytes.data(), Device::cpu(), 4);
      copy_bytes(*ctx, large.data(), Device::cuda(), bytes.data(), Device::cpu(), kChunk);
    }
    EXPECT_EQ(fake::live().host_blocks, 4);
  }
  EXPECT_EQ(fake::live().host_blocks, 0);
  EXPECT_EQ(fake::live().events, 0);
}

TEST_F(ContextUpload, AnUploadToALostGpuEndsTheContext) {
  Context ctx({.device = Device::cuda(), .threads = 1});
  const Buffer buffer(4, Device::cuda());
  const std::int32_t value = 1;
  const auto upload = [&] {
    copy_bytes(ctx, buffer.data(), Device::cuda(), &value, Device::cpu(), 4);
  };
  upload();
  fake::lose_gpus(cudaErrorIllegalAddress);
  EXPECT_EQ(error_of(upload).code(), ErrorCode::device);
  EXPECT_NE(ctx.lost(), "");
  fake::lose_gpus(cudaSuccess);  // found again, so that everything can be freed
}

}  // namespace
}  // namespace tessera::test
