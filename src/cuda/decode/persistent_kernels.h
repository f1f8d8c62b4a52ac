// The kinds of layers and weights that the persistent kernel is compiled for.
#pragma once

#include "cuda/decode/call.h"
#include "tessera/context.h"
#include "tessera/decode_layers.h"
#include "tessera/dtype.h"
#include "tessera/weight.h"

namespace tessera::cuda::decode {

struct PersistentKernel {
  int rows, depth;  // of a unit of weights
  int zero_bytes;   // before activations in shared memory
  int most_hidden;
  int queries;  // that a block takes together
  int (*shared_bytes)(const Call& call);
  void (*start)(Context& ctx, int blocks, const Call& call);
};

// Null: there is none.
const PersistentKernel* persistent_kernel_for(DecodeLayerKind kind, Format format, DType dtype);

}  // namespace tessera::cuda::decode
