// Which GPUs a build has kernels for.
#pragma once

#include <string>
#include <string_view>

namespace tessera::cuda {

// Empty if a build for these architectures (CMake's CUDA_ARCHITECTURES, separated by spaces) runs
// on this compute capability; else the reason why it does not, and what to do.
std::string why_no_kernels(int major, int minor, std::string_view architectures);

}  // namespace tessera::cuda
