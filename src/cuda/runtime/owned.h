// Owners of the CUDA runtime's objects. They ignore failures: nothing can be done about those, and
// after a fault on the GPU there is nothing left to free.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <type_traits>

namespace tessera::cuda {

template <typename Handle, cudaError_t (*destroy)(Handle)>
struct Destroy {
  void operator()(Handle handle) const noexcept { destroy(handle); }
};
template <typename Handle, cudaError_t (*destroy)(Handle)>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<Handle, destroy>>;

using OwnedStream = Owned<cudaStream_t, cudaStreamDestroy>;
using OwnedEvent = Owned<cudaEvent_t, cudaEventDestroy>;
using OwnedGraph = Owned<cudaGraph_t, cudaGraphDestroy>;
using OwnedGraphExec = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;

}  // namespace tessera::cuda
