// The instances of wide.cuh, one file for each dtype of activations.
#pragma once

#include "cuda/linear/hopper/wide.cuh"
#include "cuda/linear/layout/scales.cuh"
#include "cuda/runtime/launch.h"

namespace tessera::cuda {

void wide_f16(const Launch& launch, Grid grid, Format format, ScaleMode mode,
              const PanelArgs& args);
void wide_bf16(const Launch& launch, Grid grid, Format format, ScaleMode mode,
               const PanelArgs& args);

template <typename T>
void wide_as(const Launch& launch, Grid grid, Format format, ScaleMode mode,
             const PanelArgs& args) {
  with_panel_kind(format, mode, args.boxes.zero_bytes > 0, [&]<Format F, ScaleMode S, bool Z>() {
    grid.shared_bytes = WideStage<F, S, Z, T>::kAllBytes;
    launch(wide_kernel<F, S, Z, T>, grid, args);
  });
}

}  // namespace tessera::cuda
