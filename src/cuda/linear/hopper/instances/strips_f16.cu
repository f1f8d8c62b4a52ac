#include "cuda/linear/hopper/strip_kernels.h"

namespace tessera::cuda {

void strips_f16(const Launch& launch, const Grid& grid, Format format, ScaleMode mode,
                const StripArgs& args) {
  strips_as<Half>(launch, grid, format, mode, args);
}

}  // namespace tessera::cuda
