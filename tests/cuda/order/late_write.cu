#include "cuda/order/late_write.h"

#include "cuda/runtime/launch.h"
#include "cuda/runtime/state.h"
#include "cuda/tile/grid_dependency.cuh"

namespace tessera::test {
namespace {

constexpr unsigned kThreads = 512;

// The emulated GPU runs one kernel after the other: nobody can be early there.
__device__ void sleep_for_long() {
#if defined(__CUDA_ARCH__)
  constexpr unsigned long long kNanoseconds = 200'000;
  const auto now = [] {
    unsigned long long time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
  };
  for (const unsigned long long begin = now(); now() - begin < kNanoseconds;) __nanosleep(1000);
#endif
}

__global__ void copy_late(const std::uint32_t* from, std::uint32_t* to, std::int64_t words) {
  cuda::let_next_kernel_start();
  cuda::wait_for_earlier_kernels();
  sleep_for_long();
  for (std::int64_t i = threadIdx.x; i < words; i += kThreads) to[i] = from[i];
}

}  // namespace

void write_late(Context& ctx, const void* from, void* to, std::int64_t bytes) {
  const cuda::Launch launch(ctx, "copy_late");
  launch(
      copy_late,
      {.blocks = 1, .threads = kThreads, .overlaps = cuda::state_of(ctx).limits().capability >= 90},
      static_cast<const std::uint32_t*>(from), static_cast<std::uint32_t*>(to), bytes / 4);
}

}  // namespace tessera::test
