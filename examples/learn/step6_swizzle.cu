// Step 6: the kernel of step 5 (tensor_cores.cuh), with the chunks of each row exchanged, so that
// the same chunk of eight rows lies in eight different places.
//
//   bank / 4     0 1 2 3 4 5 6 7
//   row 0      | 0 1 2 3 4 5 6 7        Chunk c of row r lies at c ^ (r % 8): each row is an order
//   row 1      | 1 0 3 2 5 4 7 6        of all eight chunks, and so is each column. Rows are still
//   row 2      | 2 3 0 1 6 7 4 5        written in whole 128 bytes: neither way has a conflict.
//   row 3      | 3 2 1 0 7 6 5 4
//   ...
#include "cuda/runtime/launch.h"
#include "tensor_cores.cuh"

namespace tessera::learn {
namespace {

struct Swizzled {
  __device__ static int place(int row, int chunk) { return chunk ^ row % 8; }
};

}  // namespace

void run_swizzle(Context& ctx, const Problem& p) {
  const cuda::Launch launch(ctx, "learn: swizzle");
  const std::int64_t tiles = (p.tokens + kTile - 1) / kTile;
  launch(attend_by_tensor_cores<Swizzled>, {.blocks = p.heads * tiles, .threads = kThreads}, p);
}

}  // namespace tessera::learn
