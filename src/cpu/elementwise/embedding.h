// Embedding on the CPU: rows of a table by index. src/ops/embedding.cc has checked the arguments.
#pragma once

#include "tessera/embedding.h"

namespace tessera::cpu {

void embedding(Context& ctx, const EmbeddingArgs& args);

}  // namespace tessera::cpu
