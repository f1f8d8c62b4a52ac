// linear() and gated_linear() of a few rows: the streaming kernel (stream.cuh), from the host.
#pragma once

#include "cuda/linear/product.h"
#include "tessera/context.h"

namespace tessera::cuda {

inline constexpr int kStreamThreads = 512;  // of each multiprocessor's one block

// Up to how many rows it takes of this product, 0 for none: weights in tiles, or dense ones of the
// activations' dtype with rows of whole pairs of slabs that lie on 16 bytes; activations in f16 or
// bf16 of which a row fits into shared memory; and matrices (matrix.h).
std::int64_t stream_rows_at_most(Context& ctx, const Product& product);
void stream(Context& ctx, const Product& product);
// The kernel for one row (stream_row.cuh), which stream() takes where it is faster: whether there
// is one for this product, and that kernel itself.
bool has_stream_row(Context& ctx, const Product& product);
void stream_row(Context& ctx, const Product& product);

}  // namespace tessera::cuda
