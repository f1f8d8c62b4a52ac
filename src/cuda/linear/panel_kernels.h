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

template <Format F, ScaleMode S, typename T>
void panels_with(const Launch& launch, const Grid& grid, const PanelArgs& args) {
  const auto with_zeros = [&](auto zeros) {
    constexpr bool kZeros = decltype(zeros)::value;
    switch (panel_tokens(args.rows)) {
      case 16:
        return panels_of<F, S, kZeros, T, 16>(launch, grid, args);
      case 64:
        return panels_of<F, S, kZeros, T, 64>(launch, grid, args);
      default:
        return panels_of<F, S, kZeros, T, 256>(launch, grid, args);
    }
  };
  if constexpr (F == Format::int4) {
    if (args.scales.zeros) return with_zeros(std::true_type());
  }
  with_zeros(std::false_type());
}

template <typename T>
void panels_as(const Launch& launch, const Grid& grid, Format format, ScaleMode mode,
               const PanelArgs& args) {
  switch (format) {
    case Format::dense:
      return;
    case Format::nvfp4:
      return panels_with<Format::nvfp4, ScaleMode::fragments, T>(launch, grid, args);
    case Format::mxfp4:
      return panels_with<Format::mxfp4, ScaleMode::fragments, T>(launch, grid, args);
    case Format::nf4:
      return panels_with<Format::nf4, ScaleMode::sums, T>(launch, grid, args);
    case Format::int4:
      if (mode == ScaleMode::sums) {
        return panels_with<Format::int4, ScaleMode::sums, T>(launch, grid, args);
      }
      return panels_with<Format::int4, ScaleMode::fragments, T>(launch, grid, args);
    case Format::int8:
      return panels_with<Format::int8, ScaleMode::none, T>(launch, grid, args);
    case Format::fp8:
      return panels_with<Format::fp8, ScaleMode::none, T>(launch, grid, args);
  }
}

}  // namespace tessera::cuda
