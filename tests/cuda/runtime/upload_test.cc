// Uploads on a real GPU: the bytes arrive, in the order of the stream, and nobody waits for it.
#include "cuda/runtime/upload.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "support/devices.h"
#include "tessera/buffer.h"
#include "tessera/context.h"
#include "tessera/kv_cache.h"

namespace tessera::test {
namespace {

using cuda::Uploader;

class CudaUploadTest : public DeviceTest {
 protected:
  void upload(void* to, const void* from, std::int64_t bytes) {
    copy_bytes(ctx(), to, GetParam(), from, Device::cpu(), bytes);
  }
  void copy_on_device(void* to, const Tensor& from) {
    copy_bytes(ctx(), to, GetParam(), from.data, GetParam(), from.bytes());
  }
  template <typename T>
  std::vector<T> download(const Buffer& buffer) {
    std::vector<T> values(static_cast<std::size_t>(buffer.bytes()) / sizeof(T));
    copy_bytes(ctx(), values.data(), Device::cpu(), buffer.data(), GetParam(), buffer.bytes());
    return values;
  }
  // Keeps the stream busy for some milliseconds: 16 GiB are read and written.
  void delay() {
    constexpr std::int64_t kBytes = 256 << 20;
    if (!from_.data()) from_ = Buffer(kBytes, GetParam()), to_ = Buffer(kBytes, GetParam());
    for (int i = 0; i < 64; ++i) {
      copy_bytes(ctx(), to_.data(), GetParam(), from_.data(), GetParam(), kBytes);
    }
  }
  bool busy() {
    const cudaError_t state = cudaStreamQuery(static_cast<cudaStream_t>(ctx().stream()));
    cudaGetLastError();  // "not ready" was an answer: no later launch is blamed for it
    return state == cudaErrorNotReady;
  }

 private:
  Buffer from_, to_;
};
INSTANTIATE_TEST_SUITE_P(Devices, CudaUploadTest, testing::Values(Device::cuda()), device_name);

TEST_P(CudaUploadTest, BytesOfEverySizeArrive) {
  constexpr std::int64_t kSmall = Uploader::kSmallBytes, kChunk = Uploader::kChunkBytes;
  for (const std::int64_t size : {std::int64_t{1}, std::int64_t{3}, kSmall - 1, kSmall, kSmall + 1,
                                  kChunk - 1, kChunk, kChunk + 1, 3 * kChunk, 7 * kChunk + 12345}) {
    const Buffer buffer(size, GetParam());
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::uint8_t>(i * 2654435761u >> 13);
    }
    const std::vector<std::uint8_t> sent = bytes;
    upload(buffer.data(), bytes.data(), size);
    std::fill(bytes.begin(), bytes.end(), std::uint8_t{0xff});
    EXPECT_EQ(download<std::uint8_t>(buffer), sent) << size;
  }
}

TEST_P(CudaUploadTest, ASmallUploadDoesNotWaitForTheWorkBeforeIt) {
  const Buffer buffer(DType::i32, {1}, GetParam());
  std::int32_t value = 1;
  upload(buffer.data(), &value, sizeof(value));  // takes the pinned memory
  delay();
  ASSERT_TRUE(busy());
  value = 2;
  upload(buffer.data(), &value, sizeof(value));
  EXPECT_TRUE(busy());
  EXPECT_EQ(download<std::int32_t>(buffer), std::vector<std::int32_t>{2});
}

// As in decoding: a small tensor is written anew for each step, and the work of a step reads it
// before the next upload. The host is far ahead, so the ring is used many times over.
TEST_P(CudaUploadTest, EveryStepReadsItsOwnUpload) {
  constexpr std::int64_t kSteps = 20 * Uploader::kSmallSlots + 3;
  const Buffer id(DType::i32, {1}, GetParam()), seen(DType::i32, {kSteps}, GetParam());
  std::vector<std::int32_t> expected(kSteps);
  std::iota(expected.begin(), expected.end(), 1000);
  delay();
  for (std::int64_t step = 0; step < kSteps; ++step) {
    upload(id.data(), &expected[static_cast<std::size_t>(step)], id.bytes());
    copy_on_device(static_cast<std::int32_t*>(seen.data()) + step, id.tensor(DType::i32, {1}));
  }
  EXPECT_EQ(download<std::int32_t>(seen), expected);
}

TEST_P(CudaUploadTest, EveryStepOfACacheHasItsOwnTensors) {
  constexpr std::int64_t kSteps = 100, kTokens = 3;
  KvCache cache(ctx(), {.layers = 1,
                        .kv_heads = 1,
                        .head_dim = 8,
                        .policy = CachePolicy::full(),
                        .max_tokens = kSteps * kTokens,
                        .max_step = kTokens});
  const Buffer positions(DType::i64, {kSteps * kTokens}, GetParam());
  const Buffer lengths(DType::i32, {kSteps}, GetParam());
  delay();
  for (std::int64_t i = 0; i < kSteps; ++i) {
    const std::int32_t ids[kTokens] = {};
    const CacheStep& step = cache.step(ctx(), ids);
    copy_on_device(static_cast<std::int64_t*>(positions.data()) + i * kTokens, step.positions);
    copy_on_device(static_cast<std::int32_t*>(lengths.data()) + i, step.groups[0].pages.lengths);
  }
  std::vector<std::int64_t> all_positions(kSteps * kTokens);
  std::iota(all_positions.begin(), all_positions.end(), 0);
  EXPECT_EQ(download<std::int64_t>(positions), all_positions);
  std::vector<std::int32_t> all_lengths;
  for (std::int64_t i = 1; i <= kSteps; ++i) {
    all_lengths.push_back(static_cast<std::int32_t>(i * kTokens));
  }
  EXPECT_EQ(download<std::int32_t>(lengths), all_lengths);
}

// Larger than all slots together, from memory that is gone when the copy is still on its way.
TEST_P(CudaUploadTest, ALargeUploadKeepsItsPlaceBetweenSmallOnes) {
  constexpr std::int64_t kNumbers = (4 * Uploader::kChunkBytes + 4096) / 4;
  const Buffer buffer(DType::i32, {kNumbers}, GetParam());
  auto* const data = static_cast<std::int32_t*>(buffer.data());
  const std::int32_t first = -1, last = -2;
  upload(data, &first, sizeof(first));  // written over
  {
    std::vector<std::int32_t> numbers(kNumbers);
    std::iota(numbers.begin(), numbers.end(), 0);
    upload(data, numbers.data(), buffer.bytes());
  }
  upload(data + kNumbers - 1, &last, sizeof(last));
  std::vector<std::int32_t> expected(kNumbers);
  std::iota(expected.begin(), expected.end(), 0);
  expected.back() = last;
  EXPECT_EQ(download<std::int32_t>(buffer), expected);
}

}  // namespace
}  // namespace tessera::test
