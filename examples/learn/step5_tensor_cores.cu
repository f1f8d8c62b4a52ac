// Step 5: products by the tensor cores (tensor_cores.cuh), with tiles in shared memory in the same
// order as in memory.
//
//   bank / 4     0 1 2 3 4 5 6 7        The 32 banks are eight chunks of 16 bytes wide, and so is
//   row 0      | 0 1 2 3 4 5 6 7        a row. ldmatrix reads one chunk of eight rows at a time:
//   row 1      | 0 1 2 3 4 5 6 7        all eight lie in the same four banks, and it takes eight
//   row 2      | 0 1 2 3 4 5 6 7        turns instead of one.
#include "cuda/runtime/launch.h"
#include "tensor_cores.cuh"

namespace tessera::learn {
namespace {

struct AsTheyLie {
  __device__ static int place(int /*row*/, int chunk) { return chunk; }
};

}  // namespace

void run_tensor_cores(Context& ctx, const Problem& p) {
  const cuda::Launch launch(ctx, "learn: tensor cores");
  const std::int64_t tiles = (p.tokens + kTile - 1) / kTile;
  launch(attend_by_tensor_cores<AsTheyLie>, {.blocks = p.heads * tiles, .threads = kThreads}, p);
}

}  // namespace tessera::learn
