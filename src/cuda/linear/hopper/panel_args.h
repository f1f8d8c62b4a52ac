// Derives the sizes for planning panels.cuh and wide.cuh, and their arguments, from a call.
#pragma once

#include "cuda/linear/call.h"
#include "cuda/linear/hopper/panel_stage.cuh"
#include "cuda/linear/plan/panel_sizes.h"

namespace tessera::cuda {

// Whether wide_epilogue.cuh ends the product. Its epilogue then applies to rounded sums.
bool ends_by_lines(const LinearCall& call);
// Whether the copy engine can load the activations.
bool has_boxed_x(const Product& product);

// `warps`: the warps of the kernel that multiply. Each has a flag of its own, which limits the
// number of blocks.
PanelSizes panel_sizes(const LinearCall& call, int warps);

// The size of one copy: tokens of x, tiles of a weight, and in a gated product as many tiles of the
// other weight.
struct PanelBoxes {
  int tokens, tiles;
};

// Divides tiles of `pairs` pairs evenly among `blocks` blocks.
PanelWork even_work(std::int64_t tiles, int pairs, int token_blocks, int blocks);

PanelArgs panel_args(const LinearCall& call, const PanelBoxes& boxes, const PanelWork& work,
                     void* scratch);

}  // namespace tessera::cuda
