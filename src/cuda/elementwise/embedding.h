// Rows of a table, by index, on a GPU. src/ops/embedding.cc has checked the arguments.
#pragma once

#include "tessera/embedding.h"

namespace tessera::cuda {

void embedding(Context& ctx, const EmbeddingArgs& args);

}  // namespace tessera::cuda
