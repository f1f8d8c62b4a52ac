// The instances of the kernel of strips.cuh, one file for each dtype of activations so that they
// are compiled side by side.
#pragma once

#include "cuda/linear/hopper/strips.cuh"
#include "cuda/runtime/launch.h"

namespace tessera::cuda {

void strips_f16(const Launch& launch, const Grid& grid, Format format, ScaleMode mode,
                const StripArgs& args);
void strips_bf16(const Launch& launch, const Grid& grid, Format format, ScaleMode mode,
                 const StripArgs& args);

template <Format F, ScaleMode S, bool Z, typename T>
void strips_with(const Launch& launch, const Grid& grid, const StripArgs& args) {
  if (strip_tokens(args.m) == 8) {
    launch(strips_kernel<F, S, Z, T, 8>, grid, args);
  } else {
    launch(strips_kernel<F, S, Z, T, 16>, grid, args);
  }
}

template <typename T>
void strips_as(const Launch& launch, const Grid& grid, Format format, ScaleMode mode,
               const StripArgs& args) {
  with_panel_kind(format, mode, args.boxes.zero_bytes > 0, [&]<Format F, ScaleMode S, bool Z>() {
    strips_with<F, S, Z, T>(launch, grid, args);
  });
}

}  // namespace tessera::cuda
