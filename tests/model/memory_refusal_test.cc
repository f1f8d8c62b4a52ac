// The messages for a model or a cache that does not fit, from numbers alone.
#include "model/memory_refusal.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tessera::test {
namespace {

using model::CacheRequest;
using model::largest_that_fits;
using model::refusal;
using model::WeightsRequest;

constexpr std::int64_t kMiB = 1 << 20, kGiB = 1 << 30;

AvailableMemory gpu(std::int64_t free) {
  return available_memory(Device::cuda(0), {.free = free, .total = 24 * kGiB}, 0, 0);
}
AvailableMemory machine(std::int64_t total) {
  return available_memory(Device::cpu(), {.free = 1, .total = total}, 0, 0);
}

TEST(AvailableMemory, OfAGpuIsWhatIsFreeWithoutTheDriversShare) {
  const DeviceMemory memory{.free = 10 * kGiB, .total = 24 * kGiB};
  // Memory that is held there is no longer free. The workspace would be given back.
  const AvailableMemory found = available_memory(Device::cuda(1), memory, 5 * kGiB, kGiB);
  EXPECT_EQ(found.bytes, 11 * kGiB - 64 * kMiB);
  EXPECT_EQ(found.text, "cuda:1 has 10.00 GiB of 24.00 GiB free");
  EXPECT_EQ(found.elsewhere, "--device cpu");
  EXPECT_EQ(available_memory(Device::cuda(1), {.free = kMiB, .total = kGiB}, 0, 0).bytes, 0);
}

TEST(AvailableMemory, OfTheCpuIsWhatTheProcessDoesNotHoldYet) {
  const DeviceMemory memory{.free = kGiB, .total = 16 * kGiB};
  const AvailableMemory found = available_memory(Device::cpu(), memory, 5 * kGiB, kGiB);
  EXPECT_EQ(found.bytes, 12 * kGiB);  // the workspace would be given back
  EXPECT_EQ(found.text, "this process may hold 16.00 GiB of memory and holds 5.00 GiB");
  EXPECT_EQ(found.elsewhere, "");
  EXPECT_EQ(available_memory(Device::cpu(), memory, 17 * kGiB, 0).bytes, 0);
}

TEST(MemoryRefusal, OfWeightsNamesWhatWouldFit) {
  const struct {
    WeightsRequest request;
    std::string text;
  } cases[] = {
      {{.memory = gpu(10 * kGiB),
        .weights = 13 * kGiB,
        .others = {{"--weights int8", 7 * kGiB}, {"--weights nvfp4", 4 * kGiB}}},
       "cuda:0 has 10.00 GiB of 24.00 GiB free, and the weights need 13.00 GiB: --weights int8 "
       "would need 7.00 GiB, --weights nvfp4 would need 4.00 GiB"},
      {{.memory = gpu(6 * kGiB),
        .weights = 13 * kGiB,
        .loading = 500 * kMiB,
        .others = {{"--weights int8", 7 * kGiB}, {"--weights nvfp4", 4 * kGiB}}},
       "cuda:0 has 6.00 GiB of 24.00 GiB free, and the weights need 13.00 GiB and 500.0 MiB more "
       "while they are loaded: --weights nvfp4 would need 4.00 GiB"},
      {{.memory = gpu(3 * kGiB),
        .weights = 13 * kGiB,
        .others = {{"--weights int8", 7 * kGiB}, {"--weights nvfp4", 4 * kGiB}}},
       "cuda:0 has 3.00 GiB of 24.00 GiB free, and the weights need 13.00 GiB: even --weights "
       "nvfp4 would need 4.00 GiB; use a smaller model, or --device cpu"},
      {{.memory = gpu(3 * kGiB), .weights = 13 * kGiB},
       "cuda:0 has 3.00 GiB of 24.00 GiB free, and the weights need 13.00 GiB: use a smaller "
       "model, or --device cpu"},
      {{.memory = machine(8 * kGiB), .weights = 13 * kGiB},
       "this process may hold 8.00 GiB of memory and holds 0.0 KiB, and the weights need 13.00 "
       "GiB: "
       "use a smaller model"},
  };
  for (const auto& [request, text] : cases) {
    EXPECT_FALSE(request.fits());
    EXPECT_EQ(refusal(request), text);
  }
}

TEST(MemoryRefusal, OfACacheNamesTheLargestThatFits) {
  const struct {
    CacheRequest request;
    std::string text;
  } cases[] = {
      {{.memory = gpu(20 * kGiB),
        .weights = 3 * kGiB,
        .kv = 32 * kGiB,
        .workspace = 300 * kMiB,
        .tokens = 131072,
        .largest = 80640},
       "cuda:0 has 20.00 GiB of 24.00 GiB free, and beside the weights of 3.00 GiB the KV cache of "
       "131072 tokens needs 32.00 GiB and the workspace 300.0 MiB: the largest context that fits "
       "is 80640 tokens (--context 80640); --attention-sinks 4 --window N takes a stream of any "
       "length in the memory of N tokens"},
      {{.memory = gpu(kGiB),
        .weights = 3 * kGiB,
        .kv = 2 * kGiB,
        .workspace = 30 * kMiB,
        .policy = CachePolicy::sinks(4, 8188),
        .largest = 3000},
       "cuda:0 has 1.00 GiB of 24.00 GiB free, and beside the weights of 3.00 GiB the KV cache of "
       "sinks(4, 8188) needs 2.00 GiB and the workspace 30.0 MiB: the largest window that fits is "
       "3000 tokens (--window 3000), or --device cpu"},
      {{.memory = machine(kGiB),
        .weights = 3 * kGiB,
        .kv = 2 * kGiB,
        .workspace = 30 * kMiB,
        .policy = CachePolicy::last(8188),
        .largest = 3000},
       "this process may hold 1.00 GiB of memory and holds 0.0 KiB, and beside the weights of 3.00 "
       "GiB the KV cache of "
       "window(8188) needs 2.00 GiB and the workspace 30.0 MiB: the largest window that fits is "
       "3000 tokens (--window 3000)"},
      {{.memory = gpu(100 * kMiB),
        .weights = 20 * kGiB,
        .kv = kGiB,
        .workspace = 300 * kMiB,
        .tokens = 2048},
       "cuda:0 has 100.0 MiB of 24.00 GiB free, and beside the weights of 20.00 GiB the KV cache "
       "of 2048 tokens needs 1.00 GiB and the workspace 300.0 MiB: no context at all fits beside "
       "the weights; use smaller ones (--weights nvfp4), or --device cpu"},
      {{.memory = gpu(kGiB),
        .weights = 3 * kGiB,
        .kv = 20000 * kGiB,
        .policy = CachePolicy::sinks(2000000000, 1)},
       "cuda:0 has 1.00 GiB of 24.00 GiB free, and beside the weights of 3.00 GiB the KV cache of "
       "sinks(2000000000, 1) needs 20000.00 GiB: no window at all fits beside 2000000000 attention "
       "sinks; use fewer (--attention-sinks 4)"},
  };
  for (const auto& [request, text] : cases) {
    EXPECT_FALSE(request.fits());
    EXPECT_EQ(refusal(request), text);
  }
}

TEST(MemoryRefusal, WhatIsJustEnoughFits) {
  const AvailableMemory memory = gpu(kGiB);
  EXPECT_TRUE((WeightsRequest{.memory = memory, .weights = memory.bytes - 1, .loading = 1}.fits()));
  EXPECT_FALSE((WeightsRequest{.memory = memory, .weights = memory.bytes, .loading = 1}.fits()));
  EXPECT_TRUE((CacheRequest{.memory = memory, .kv = memory.bytes - 1, .workspace = 1}.fits()));
  EXPECT_FALSE((CacheRequest{.memory = memory, .kv = memory.bytes, .workspace = 1}.fits()));
}

TEST(MemoryRefusal, TheLargestThatFitsIsFound) {
  // Pages have 64 tokens and take a kilobyte each. The workspace takes 10 KB.
  const auto need = [](std::int64_t tokens) { return (tokens + 63) / 64 * 1024 + 10240; };
  const struct {
    std::int64_t wanted, available, largest;
  } cases[] = {{1000, 10240, 0},  {1000, 11263, 0},   {1000, 11264, 64},
               {1000, 12287, 64}, {1000, 12288, 128}, {1000, 1 << 30, 1000},
               {1, 11264, 1},     {1, 0, 0},          {std::int64_t{1} << 40, 1 << 20, 64896}};
  for (const auto& [wanted, available, largest] : cases) {
    EXPECT_EQ(largest_that_fits(wanted, available, need), largest) << wanted << ", " << available;
  }
}

}  // namespace
}  // namespace tessera::test
