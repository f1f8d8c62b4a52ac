// The instances of mma.cuh, one file for each dtype of activations so that they are compiled side
// by side.
#pragma once

#include "cuda/linear/portable/mma.cuh"
#include "cuda/runtime/launch.h"

namespace tessera::cuda {

void mma_f16(const Launch& launch, const Grid& grid, Format format, ScaleMode mode,
             const MmaArgs& args);
void mma_bf16(const Launch& launch, const Grid& grid, Format format, ScaleMode mode,
              const MmaArgs& args);

template <Format F, ScaleMode S, bool Z, typename T>
void mma_tokens(const Launch& launch, const Grid& grid, const MmaArgs& args) {
  if (args.plan.tokens == 32) return launch(multiply_tiles<F, S, Z, T, 32>, grid, args);
  if (args.plan.tokens == 64) return launch(multiply_tiles<F, S, Z, T, 64>, grid, args);
  launch(multiply_tiles<F, S, Z, T, 128>, grid, args);
}

template <typename T>
void mma_as(const Launch& launch, const Grid& grid, Format format, ScaleMode mode,
            const MmaArgs& args) {
  const bool zeros = args.weights[0].scales.zeros != nullptr;
  with_tile_kind(format, mode, zeros, [&]<Format F, ScaleMode S, bool Z>() {
    if constexpr (F != Format::dense) mma_tokens<F, S, Z, T>(launch, grid, args);
  });
}

}  // namespace tessera::cuda
