#include "cuda/runtime/errors.h"

#include "core/device_lost.h"
#include "core/fail.h"
#include "cuda/runtime/launch.h"

namespace tessera::cuda {

std::string text_of(cudaError_t error) {
  return fmt::format("{}: {}", cudaGetErrorName(error), cudaGetErrorString(error));
}

bool ends_gpu_work(cudaError_t error) {
  switch (error) {
    // A kernel did something that the hardware refuses.
    case cudaErrorIllegalAddress:       // accessed memory that does not exist
    case cudaErrorMisalignedAddress:    // an address that is no multiple of the access's size
    case cudaErrorInvalidAddressSpace:  // global, shared or local memory where another is needed
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidPc:            // jumped to an address without code
    case cudaErrorHardwareStackError:   // its stack is broken, or too small
    case cudaErrorTensorMemoryLeak:     // ended with tensor memory still held
    case cudaErrorLaunchFailure:        // anything else inside a kernel
    case cudaErrorAssert:               // an assert in device code
    case cudaErrorLaunchTimeout:        // ran longer than a GPU with a display lets it
    case cudaErrorECCUncorrectable:     // memory lost bits
    case cudaErrorNvlinkUncorrectable:  // a link between GPUs lost bits
    case cudaErrorContained:            // a hardware fault that was kept to this process
    case cudaErrorExternalDevice:       // a device that CUDA shares data with failed
    case cudaErrorMpsClientTerminated:  // the server that shares the GPU ended this client
    case cudaErrorMpsRpcFailure:        // ... or can no longer be reached
      return true;
    default:
      return false;
  }
}

void check(cudaError_t error, std::string_view attempt) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  const std::string what_failed = fmt::format("{} failed: {}", attempt, text_of(error));
  // Kernels run asynchronously: the call that reports a fault is seldom its cause.
  if (ends_gpu_work(error)) throw DeviceLost(what_failed + " (in it or in work before it)");
  throw Error(ErrorCode::device, what_failed);
}

// Freeing a null pointer does nothing except report errors.
void check_not_lost(const std::string& attempt) {
  const cudaError_t error = cudaFree(nullptr);
  if (ends_gpu_work(error)) check(error, attempt);
  cudaGetLastError();
}

void Launch::check(cudaError_t error) const {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // reported here: no later call is blamed for it
  if (error == cudaErrorNoKernelImageForDevice) {
    fail(ErrorCode::unsupported,
         "{}: this build has no kernels for this GPU: build with TESSERA_CUDA_ARCHITECTURES set to "
         "its compute capability",
         kernel_);
  }
  if (error == cudaErrorUnsupportedPtxVersion) {
    fail(ErrorCode::unsupported,
         "{}: the driver is too old to compile this build's kernels for this GPU: update it, or "
         "build with TESSERA_CUDA_ARCHITECTURES set to the GPU's compute capability",
         kernel_);
  }
  cuda::check(error, fmt::format("launching {}", kernel_));
}

}  // namespace tessera::cuda
