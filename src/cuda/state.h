// What one CUDA Context owns beside its workspace. Made with the Context and ended with it.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "tessera/device.h"

namespace tessera::cuda {

class State {
 public:
  explicit State(Device device);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  cudaStream_t stream() const { return stream_; }
  // cuBLASLt's; null until the first product makes it (matmul.cc).
  std::shared_ptr<void>& cublas_handle() { return cublas_handle_; }

 private:
  Device device_;
  cudaStream_t stream_ = nullptr;
  std::shared_ptr<void> cublas_handle_;
};

}  // namespace tessera::cuda
