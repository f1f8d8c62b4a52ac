// The instances of panels.cuh, one file for each dtype of activations, gated or not.
#pragma once

#include "cuda/linear/hopper/panels.cuh"
#include "cuda/runtime/launch.h"

namespace tessera::cuda {

void panels_f16(const Launch& launch, Grid grid, Format format, ScaleMode mode,
                const PanelArgs& args);
void panels_bf16(const Launch& launch, Grid grid, Format format, ScaleMode mode,
                 const PanelArgs& args);
void panels_gated_f16(const Launch& launch, Grid grid, Format format, ScaleMode mode,
                      const PanelArgs& args);
void panels_gated_bf16(const Launch& launch, Grid grid, Format format, ScaleMode mode,
                       const PanelArgs& args);

template <Format F, ScaleMode S, bool Z, typename T, bool kGated>
void panels_with(const Launch& launch, Grid grid, const PanelArgs& args) {
  const auto with_tokens = [&](auto tokens) {
    constexpr int kTokens = decltype(tokens)::value;
    grid.shared_bytes = PanelStage<F, S, Z, T, kTokens, kGated>::kAllBytes;
    launch(panels_kernel<F, S, Z, T, kTokens, kGated>, grid, args);
  };
  switch (panel_tokens(args.output.m)) {
    case 32:
      return with_tokens(std::integral_constant<int, 32>());
    case 64:
      return with_tokens(std::integral_constant<int, 64>());
    default:
      return with_tokens(std::integral_constant<int, 128>());
  }
}

template <typename T, bool kGated>
void panels_as(const Launch& launch, const Grid& grid, Format format, ScaleMode mode,
               const PanelArgs& args) {
  with_panel_kind(format, mode, args.boxes.zero_bytes > 0, [&]<Format F, ScaleMode S, bool Z>() {
    panels_with<F, S, Z, T, kGated>(launch, grid, args);
  });
}

}  // namespace tessera::cuda
