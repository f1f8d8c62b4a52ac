#include "cuda/decode/persistent.cuh"

#include "cuda/decode/persistent_kernels.h"
#include "cuda/runtime/launch.h"

namespace tessera::cuda::decode {
namespace {

template <typename Kind, typename Layer>
PersistentKernel kernel_of() {
  return {.rows = Kind::kRows,
          .depth = Kind::kDepth,
          .zero_bytes = Places<Kind>::kZeros * 2,
          .most_hidden = 8 * Layer::kVectors * kThreads,
          .queries = Layer::kQueries,
          .shared_bytes = Places<Kind>::bytes,
          .start = [](Context& ctx, int blocks, const Call& call) {
            // Two such kernels on two streams must not get half of the GPU each: they would wait
            // forever.
            Launch launch(ctx, "persistent");
            launch(persistent_kernel<Kind, Layer>,
                   {.blocks = blocks,
                    .threads = kAllThreads,
                    .shared_bytes = Places<Kind>::bytes(call),
                    .all_at_once = true},
                   call);
          }};
}

template <typename Layer>
const PersistentKernel* kernel_for(Format format) {
  static const PersistentKernel nvfp4 = kernel_of<TileWeights<Format::nvfp4, Half>, Layer>();
  static const PersistentKernel dense = kernel_of<RowWeights<Half>, Layer>();
  return format == Format::nvfp4 ? &nvfp4 : format == Format::dense ? &dense : nullptr;
}

}  // namespace

const PersistentKernel* persistent_kernel_for(DecodeLayerKind kind, Format format, DType dtype) {
  if (dtype != DType::f16) return nullptr;
  return kind == DecodeLayerKind::parallel ? kernel_for<ParallelLayer>(format)
                                           : kernel_for<SerialLayer>(format);
}

}  // namespace tessera::cuda::decode
