// Replaces src/cuda/runtime/start_kernel.h: the kernel waits in the stream, as on a GPU, and runs
// on the CPU when something waits for the stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <type_traits>

#include "cuda/runtime/state.h"
#include "cuda_host/fake_machine.h"
#include "emulated/simt.h"

namespace tessera::cuda {

struct LaunchWishes {
  bool overlaps = false;
  int cluster = 1;
  bool all_at_once = false;
};

// Blocks run one after the other: more than one would wait for each other for ever.
template <typename... Params>
cudaError_t start_kernel(State& /*state*/, void (*kernel)(Params...), dim3 grid, dim3 block,
                         std::size_t shared_bytes, cudaStream_t stream, const LaunchWishes& wishes,
                         std::type_identity_t<Params>... args) {
  if (wishes.all_at_once && grid.x * grid.y * grid.z > 1) {
    return cudaErrorCooperativeLaunchTooLarge;
  }
  return test::fake::enqueue("cudaLaunchKernel", stream, [=] {
    emulated::run_grid(grid, block, shared_bytes, [&] { kernel(args...); });
  });
}

}  // namespace tessera::cuda
