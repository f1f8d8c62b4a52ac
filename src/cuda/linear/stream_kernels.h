// The instances of the streaming kernel, one file for each dtype of activations so that they are
// compiled side by side.
#pragma once

#include "cuda/launch.h"
#include "cuda/linear/stream.cuh"

namespace tessera::cuda {

void stream_f16(const Launch& launch, const Grid& grid, Format format, ScaleMode mode,
                const StreamArgs& args);
void stream_bf16(const Launch& launch, const Grid& grid, Format format, ScaleMode mode,
                 const StreamArgs& args);

template <Format F, ScaleMode S, bool Z, typename T>
void stream_columns(const Launch& launch, const Grid& grid, const StreamArgs& args) {
  if constexpr (F != Format::dense) {  // of which the library is faster from few rows on
    if (args.rows > 8) return launch(stream_rows<F, S, Z, T, 16>, grid, args);
  }
  launch(stream_rows<F, S, Z, T, 8>, grid, args);
}

template <Format F, ScaleMode S, typename T>
void stream_with(const Launch& launch, const Grid& grid, const StreamArgs& args) {
  if constexpr (F == Format::int4 || F == Format::int8) {
    if (args.weights[0].scales.zeros) return stream_columns<F, S, true, T>(launch, grid, args);
  }
  stream_columns<F, S, false, T>(launch, grid, args);
}

template <typename T>
void stream_as(const Launch& launch, const Grid& grid, Format format, ScaleMode mode,
               const StreamArgs& args) {
  switch (format) {
    case Format::dense:
      return stream_with<Format::dense, ScaleMode::none, T>(launch, grid, args);
    case Format::nvfp4:
      return stream_with<Format::nvfp4, ScaleMode::fragments, T>(launch, grid, args);
    case Format::mxfp4:
      return stream_with<Format::mxfp4, ScaleMode::fragments, T>(launch, grid, args);
    case Format::nf4:
      return stream_with<Format::nf4, ScaleMode::sums, T>(launch, grid, args);
    case Format::int4:
      if (mode == ScaleMode::none) {
        return stream_with<Format::int4, ScaleMode::none, T>(launch, grid, args);
      }
      if (mode == ScaleMode::sums) {
        return stream_with<Format::int4, ScaleMode::sums, T>(launch, grid, args);
      }
      return stream_with<Format::int4, ScaleMode::fragments, T>(launch, grid, args);
    case Format::int8:
      if (mode == ScaleMode::none) {
        return stream_with<Format::int8, ScaleMode::none, T>(launch, grid, args);
      }
      return stream_with<Format::int8, ScaleMode::sums, T>(launch, grid, args);
    case Format::fp8:
      return stream_with<Format::fp8, ScaleMode::none, T>(launch, grid, args);
  }
}

}  // namespace tessera::cuda
