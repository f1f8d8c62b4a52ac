// The meaning of the CUDA runtime's errors.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace tessera::cuda {

// "cudaErrorNoDevice: no CUDA-capable device is detected"
std::string text_of(cudaError_t error);

// Whether the driver stops all GPU work of this process after this error. Every later call then
// reports it again, until the process ends.
bool ends_gpu_work(cudaError_t error);

// Throws DeviceLost "<attempt> failed: ..." if GPU work has ended. For failures of libraries that
// hide CUDA's error.
void check_not_lost(const std::string& attempt);

}  // namespace tessera::cuda
