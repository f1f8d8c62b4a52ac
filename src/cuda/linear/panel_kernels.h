// The instances of the kernel for many rows, one file for each dtype of activations.
#pragma once

#include "cuda/launch.h"
#include "cuda/linear/panels.cuh"

namespace tessera::cuda {

// Rows of x that a block takes, of which there are three kinds.
inline int panel_tokens(std::int64_t rows) { return rows <= 16 ? 16 : rows <= 128 ? 64 : 256; }

void panels_f16(const Launch& launch, Grid grid, Format format, ScaleMode mode,
                const PanelArgs& args);
void panels_bf16(const Launch& launch, Grid grid, Format format, ScaleMode mode,
                 const PanelArgs& args);

template <Format F, ScaleMode S, bool Z, typename T, int kTokens>
void panels_of(const Launch& launch, Grid grid, const PanelArgs& args) {
  using Stage = PanelStage<F, Z, T, kTokens>;
  grid.threads = Stage::kThreads;
  grid.shared_bytes = Stage::kAllBytes;
  launch(panel_rows<F, S, Z, T, kTokens>, grid, args);
}

template <Format F, ScaleMode S, bool Z, typename T>
void panels_with(const Launch& launch, const Grid& grid, const PanelArgs& args) {
  switch (panel_tokens(args.rows)) {
    case 16:
      return panels_of<F, S, Z, T, 16>(launch, grid, args);
    case 64:
      return panels_of<F, S, Z, T, 64>(launch, grid, args);
    default:
      return panels_of<F, S, Z, T, 256>(launch, grid, args);
  }
}

// Dense weights have no tiles; rare kinds take another road (panels_take()) and have no instances.
template <typename Kind>
inline constexpr bool kHasPanels =
    Kind::kFormat == Format::int8   ? Kind::kScales == ScaleMode::none
    : Kind::kFormat == Format::int4 ? Kind::kScales != ScaleMode::none
                                    : Kind::kFormat != Format::dense;

template <typename T>
void panels_as(const Launch& launch, const Grid& grid, Format format, ScaleMode mode,
               const PanelArgs& args) {
  with_tile_kind(format, mode, [&](auto kind) {
    using Kind = decltype(kind);
    if constexpr (kHasPanels<Kind>) {
      if constexpr (Kind::kFormat == Format::int4) {
        if (args.scales.zeros) {
          return panels_with<Kind::kFormat, Kind::kScales, true, T>(launch, grid, args);
        }
      }
      panels_with<Kind::kFormat, Kind::kScales, false, T>(launch, grid, args);
    }
  });
}

}  // namespace tessera::cuda
