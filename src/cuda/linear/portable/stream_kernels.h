// The instances of the streaming kernel, one file for each dtype of activations so that they are
// compiled side by side.
#pragma once

#include "cuda/linear/portable/stream.cuh"
#include "cuda/runtime/launch.h"

namespace tessera::cuda {

void stream_f16(const Launch& launch, const Grid& grid, Format format, ScaleMode mode,
                const StreamArgs& args);
void stream_bf16(const Launch& launch, const Grid& grid, Format format, ScaleMode mode,
                 const StreamArgs& args);

template <Format F, ScaleMode S, bool Z, typename T>
void stream_with(const Launch& launch, const Grid& grid, const StreamArgs& args) {
  if constexpr (has_one_token_kernel(F, S)) {
    if (args.one_token) return launch(stream_kernel<F, S, Z, T, 1>, grid, args);
  }
  if constexpr (F != Format::dense) {  // dense weights: the library is faster there
    if (args.m > 8 || args.chunk_pairs < args.pairs)
      return launch(stream_kernel<F, S, Z, T, 16>, grid, args);
  }
  launch(stream_kernel<F, S, Z, T, 8>, grid, args);
}

template <typename T>
void stream_as(const Launch& launch, const Grid& grid, Format format, ScaleMode mode,
               const StreamArgs& args) {
  const bool zeros = args.weights[0].scales.zeros != nullptr;
  with_tile_kind(format, mode, zeros, [&]<Format F, ScaleMode S, bool Z>() {
    stream_with<F, S, Z, T>(launch, grid, args);
  });
}

}  // namespace tessera::cuda
