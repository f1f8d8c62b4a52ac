#include "cuda/decode/persistent.cuh"

#include "cuda/decode/persistent_kernels.h"
#include "cuda/runtime/launch.h"

namespace tessera::cuda::decode {
namespace {

template <typename Kind>
PersistentKernel kernel_of() {
  return {.rows = Kind::kRows,
          .depth = Kind::kDepth,
          .zero_bytes = Places<Kind>::kZeros * 2,
          .shared_bytes = Places<Kind>::bytes,
          .start = [](Context& ctx, int blocks, const Call& call) {
            // Two such kernels on two streams must not get half of the GPU each: they would wait
            // for ever.
            Launch launch(ctx, "persistent");
            launch(persistent_kernel<Kind>,
                   {.blocks = blocks,
                    .threads = kAllThreads,
                    .shared_bytes = Places<Kind>::bytes(call),
                    .all_at_once = true},
                   call);
          }};
}

}  // namespace

const PersistentKernel* persistent_kernel_for(Format format, DType dtype) {
  static const PersistentKernel nvfp4 = kernel_of<TileWeights<Format::nvfp4, Half>>();
  static const PersistentKernel dense = kernel_of<RowWeights<Half>>();
  if (dtype != DType::f16) return nullptr;
  return format == Format::nvfp4 ? &nvfp4 : format == Format::dense ? &dense : nullptr;
}

}  // namespace tessera::cuda::decode
