#include "cuda/linear/hopper/strip_kernels.h"

namespace tessera::cuda {

void strips_bf16(const Launch& launch, const Grid& grid, Format format, ScaleMode mode,
                 const StripArgs& args) {
  strips_as<BFloat16>(launch, grid, format, mode, args);
}

}  // namespace tessera::cuda
