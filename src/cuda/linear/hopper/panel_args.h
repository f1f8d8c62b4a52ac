// Makes the sizes for planning panels.cuh and wide.cuh, and their arguments, from a call.
#pragma once

#include "cuda/linear/call.h"
#include "cuda/linear/hopper/panel_stage.cuh"
#include "cuda/linear/plan/panel_sizes.h"

namespace tessera::cuda {

// Whether wide_epilogue.cuh ends the product. What follows it then meets rounded sums.
bool ends_by_lines(const LinearCall& call);
// Whether the copy engine can bring the activations.
bool has_boxed_x(const Product& product);

// For a kernel with so many warps that multiply: each has a flag of its own, which limits the
// number of blocks.
PanelSizes panel_sizes(const LinearCall& call, int warps);

// What one copy brings: tokens of x, tiles of a weight; of a gated product, as many of the other.
struct PanelBoxes {
  int tokens, tiles;
};

// Tiles of so many pairs, evenly shared by so many blocks.
PanelWork even_work(std::int64_t tiles, int pairs, int token_blocks, int blocks);

PanelArgs panel_args(const LinearCall& call, const PanelBoxes& boxes, const PanelWork& work,
                     void* scratch);

}  // namespace tessera::cuda
