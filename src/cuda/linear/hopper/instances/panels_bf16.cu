#include "cuda/linear/hopper/panel_kernels.h"

namespace tessera::cuda {

void panels_bf16(const Launch& launch, Grid grid, Format format, ScaleMode mode,
                 const PanelArgs& args) {
  panels_as<BFloat16, false>(launch, grid, format, mode, args);
}

}  // namespace tessera::cuda
