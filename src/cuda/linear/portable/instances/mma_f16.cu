#include "cuda/linear/portable/mma_kernels.h"

namespace tessera::cuda {

void mma_f16(const Launch& launch, const Grid& grid, Format format, ScaleMode mode,
             const MmaArgs& args) {
  mma_as<Half>(launch, grid, format, mode, args);
}

}  // namespace tessera::cuda
