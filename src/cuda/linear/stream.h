// linear() and gated_linear() of a few rows: the streaming kernel (stream.cuh), from the host.
#pragma once

#include "cuda/linear/product.h"
#include "tessera/context.h"

namespace tessera::cuda {

// Rows of activations that pass through in one go: the 8 columns of mma.sync.
inline constexpr int kStreamRows = 8;
inline constexpr int kStreamThreads = 512;  // of each multiprocessor's one block

// Whether it takes this product: weights in tiles, or dense ones of the activations' dtype with
// rows of whole pairs of slabs that lie on 16 bytes; activations in f16 or bf16 of which a row fits
// into shared memory.
bool stream_takes(Context& ctx, const Product& product);
void stream(Context& ctx, const Product& product);

}  // namespace tessera::cuda
