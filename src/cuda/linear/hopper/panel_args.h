// From a product to the arguments of panels.cuh and wide.cuh.
#pragma once

#include "cuda/linear/hopper/panel_stage.cuh"
#include "cuda/linear/product.h"
#include "tessera/context.h"

namespace tessera::cuda {

// Whether there are kernels for it: weights in tiles, activations in f16 or bf16, a GPU of compute
// capability 9.0, no gated pair; and matrices (matrix.h).
bool takes_panels(Context& ctx, const Product& product);
// Whether the copy engine can bring the activations.
bool has_boxed_x(const Product& product);

// What one copy brings: rows of x, tiles of the weight.
struct PanelBoxes {
  int tokens, tiles;
};

// Tiles of so many pairs, evenly shared by so many blocks.
PanelWork even_work(std::int64_t tiles, int pairs, int token_blocks, int blocks);

PanelArgs panel_args(Context& ctx, const Product& product, const PanelBoxes& boxes,
                     const PanelWork& work, void* scratch);

}  // namespace tessera::cuda
