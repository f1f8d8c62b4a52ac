// Rows of a table, by index, on a GPU. Arguments have been checked by src/ops/embedding.cc.
#pragma once

#include "tessera/embedding.h"

namespace tessera::cuda {

void embedding(Context& ctx, const EmbeddingArgs& args);

}  // namespace tessera::cuda
