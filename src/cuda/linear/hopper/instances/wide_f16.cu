#include "cuda/linear/hopper/wide_kernels.h"

namespace tessera::cuda {

void wide_f16(const Launch& launch, Grid grid, Format format, ScaleMode mode,
              const PanelArgs& args) {
  wide_as<Half>(launch, grid, format, mode, args);
}

}  // namespace tessera::cuda
