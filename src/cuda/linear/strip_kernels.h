// The instances of the kernel of strips.cuh, one file for each dtype of activations so that they
// are compiled side by side.
#pragma once

#include "cuda/launch.h"
#include "cuda/linear/strips.cuh"

namespace tessera::cuda {

void strips_f16(const Launch& launch, const Grid& grid, Format format, ScaleMode mode,
                const StripArgs& args);
void strips_bf16(const Launch& launch, const Grid& grid, Format format, ScaleMode mode,
                 const StripArgs& args);

// Dense weights have no tiles; rare kinds take another road (panels_take()) and have no instances.
template <typename Kind>
inline constexpr bool kHasStrips =
    Kind::kFormat == Format::int8   ? Kind::kScales == ScaleMode::none
    : Kind::kFormat == Format::int4 ? Kind::kScales != ScaleMode::none
                                    : Kind::kFormat != Format::dense;

template <Format F, ScaleMode S, bool Z, typename T>
void strips_with(const Launch& launch, const Grid& grid, const StripArgs& args) {
  if (strip_columns(args.rows) == 8) {
    launch(strip_rows<F, S, Z, T, 8>, grid, args);
  } else {
    launch(strip_rows<F, S, Z, T, 16>, grid, args);
  }
}

template <typename T>
void strips_as(const Launch& launch, const Grid& grid, Format format, ScaleMode mode,
               const StripArgs& args) {
  with_tile_kind(format, mode, [&](auto kind) {
    using Kind = decltype(kind);
    if constexpr (kHasStrips<Kind>) {
      if constexpr (Kind::kFormat == Format::int4) {
        if (args.boxes.zero_bytes > 0) {
          return strips_with<Kind::kFormat, Kind::kScales, true, T>(launch, grid, args);
        }
      }
      strips_with<Kind::kFormat, Kind::kScales, false, T>(launch, grid, args);
    }
  });
}

}  // namespace tessera::cuda
