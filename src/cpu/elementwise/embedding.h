// Embedding on the CPU: rows of a table by index. src/ops/embedding.cc has checked the arguments.
#pragma once

#include <cstdint>

#include "tessera/embedding.h"

namespace tessera::cpu {

void embedding(Context& ctx, const EmbeddingArgs& args);
// Scratch memory that it takes from the workspace: none for a dense table.
std::int64_t embedding_scratch_bytes(const Context& ctx, const EmbeddingArgs& args);

// Of a packed table (packed_embedding.cc).
void packed_embedding(Context& ctx, const EmbeddingArgs& args);

}  // namespace tessera::cpu
