#include "cuda/linear/portable/stream_kernels.h"

namespace tessera::cuda {

void stream_f16(const Launch& launch, const Grid& grid, Format format, ScaleMode mode,
                const StreamArgs& args) {
  stream_as<Half>(launch, grid, format, mode, args);
}

}  // namespace tessera::cuda
