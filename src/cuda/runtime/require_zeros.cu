#include "cuda/runtime/require_zeros.h"

#include <cstdio>

#include "cuda/runtime/launch.h"
#include "cuda/runtime/start_kernel.h"

namespace tessera::cuda {
namespace {

constexpr int kZeroThreads = 128;

__global__ void stop_unless_zero(const std::int32_t* counters, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kZeroThreads) {
    if (counters[i] == 0) continue;
    printf("counter %d is %d, and the next kernel expects zeros\n", i, counters[i]);
    __trap();
  }
}

}  // namespace

void require_zeros(State& state, const std::int32_t* counters, int count) {
  check(start_kernel(state, stop_unless_zero, dim3(1), dim3(kZeroThreads), 0, state.stream(), {},
                     counters, count),
        "launching the check of the counters");
}

}  // namespace tessera::cuda
