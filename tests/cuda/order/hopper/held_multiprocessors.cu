#include "cuda/order/hopper/held_multiprocessors.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "cuda/runtime/launch.h"
#include "cuda/runtime/state.h"

namespace tessera::test {
namespace {

constexpr std::uint32_t kHolds = 1, kGaveUp = 2;
constexpr unsigned long long kMostNanoseconds = 4'000'000'000;

__global__ void hold(volatile std::uint32_t* words) {
  const auto now = [] {
    unsigned long long time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
  };
  const unsigned long long begin = now();
  words[blockIdx.x] = kHolds;
  __threadfence_system();
  while (words[gridDim.x] == 0) {
    if (now() - begin > kMostNanoseconds) {
      words[blockIdx.x] = kGaveUp;
      return;
    }
    __nanosleep(2000);
  }
}

std::uint32_t read(std::uint32_t& word) { return std::atomic_ref(word).load(); }

}  // namespace

HeldMultiprocessors::HeldMultiprocessors(Context& other, int count) : other_(other), count_(count) {
  const auto words = static_cast<std::size_t>(count) + 1;
  cuda::check(cudaHostAlloc(reinterpret_cast<void**>(&words_), words * sizeof(std::uint32_t),
                            cudaHostAllocMapped),
              "pinning words");
  for (std::size_t i = 0; i < words; ++i) words_[i] = 0;
  const cuda::Launch launch(other, "hold");
  launch(hold,
         {.blocks = count,
          .threads = 1,
          .shared_bytes = static_cast<int>(cuda::state_of(other).limits().shared_bytes)},
         words_);
  const auto begin = std::chrono::steady_clock::now();
  while (!all_held() && std::chrono::steady_clock::now() - begin < std::chrono::seconds(2)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

HeldMultiprocessors::~HeldMultiprocessors() {
  std::atomic_ref(words_[count_]).store(1);
  cudaStreamSynchronize(static_cast<cudaStream_t>(other_.stream()));
  cudaFreeHost(words_);
}

bool HeldMultiprocessors::all_held() const {
  for (int i = 0; i < count_; ++i) {
    if (read(words_[i]) != kHolds) return false;
  }
  return true;
}

}  // namespace tessera::test
