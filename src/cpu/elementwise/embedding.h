// Rows of a table, by index, on the CPU. Arguments have been checked by src/ops/embedding.cc.
#pragma once

#include "tessera/embedding.h"

namespace tessera::cpu {

void embedding(Context& ctx, const EmbeddingArgs& args);

}  // namespace tessera::cpu
