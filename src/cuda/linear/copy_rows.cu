// A block for each row; thread t has elements t, t + 256, ...
#include "cuda/linear/copy_rows.h"

#include "core/rows.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/state.h"
#include "cuda/tile/grid_dependency.cuh"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;

// Word: as wide as an element.
template <typename Word>
__global__ void __launch_bounds__(kThreads) copy(Rows from, Rows to) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  for (std::int64_t row = blockIdx.x; row < to.rows(); row += gridDim.x) {
    Word* const written = to.row<Word>(row);
    const Word* const read = row < from.rows() ? from.row<const Word>(row) : nullptr;
    for (std::int64_t i = threadIdx.x; i < to.cols(); i += kThreads) {
      written[i] = read != nullptr ? read[i] : Word{};
    }
  }
}

}  // namespace

void copy_rows(Context& ctx, const Tensor& from, const Tensor& to) {
  const Launch launch(ctx, "linear");
  const Grid grid{.blocks = to.shape[0],
                  .threads = kThreads,
                  .overlaps = state_of(ctx).limits().capability >= 90};
  if (size_of(to.dtype) == 2) {
    launch(copy<std::uint16_t>, grid, Rows(from), Rows(to));
  } else {
    launch(copy<std::uint32_t>, grid, Rows(from), Rows(to));
  }
}

}  // namespace tessera::cuda
