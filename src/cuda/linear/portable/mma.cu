// The host's side of mma.cuh.
#include "cuda/linear/portable/mma.h"

#include <algorithm>

#include "cuda/linear/layout/tile_boxes.h"
#include "cuda/linear/portable/mma_kernels.h"
#include "cuda/runtime/state.h"
#include "cuda/tile/vectors.h"

namespace tessera::cuda {
namespace {

static_assert(kMmaSharedTiles <= State::kSlotCounters);  // each has a counter

bool takes_weight(const Weight& weight) {
  constexpr std::int64_t kMostPairs = 1 << 24;   // so that their 128 vectors count in 31 bits
  const auto aligned = [](const Tensor& part) {  // copied 16 bytes at a time
    return reinterpret_cast<std::uintptr_t>(part.data) % 16 == 0;
  };
  return weight.layout == WeightLayout::cuda_tiles && weight.in_features > 0 &&
         weight.data.shape[0] * pairs_of(weight) < kMostPairs && aligned(weight.data) &&
         aligned(weight.scales) && aligned(weight.zeros);
}

// Whether eight 16-bit numbers can be accessed at a time.
bool in_vectors(const Tensor& tensor) {
  return !tensor.defined() ||
         (size_of(tensor.dtype) == 2 && rows_begin_on_vectors(*as_matrix(tensor)));
}

MmaWeight argument(const Weight& weight) {
  return {.codes = weight.data.data, .scales = tile_scales(weight)};
}

MmaTileBytes bytes_of(const TileBoxes& boxes) {
  return {.codes = boxes.code_bytes, .scales = boxes.scale_bytes, .zeros = boxes.zero_bytes};
}

}  // namespace

bool takes_mma(const LinearCall& call) {
  const Product& product = call.product;
  const Tensor& x = product.x;
  if (!made_of_matrices(product) || (x.dtype != DType::f16 && x.dtype != DType::bf16)) return false;
  if (!takes_weight(product.weight)) return false;
  return !product.gated() || (takes_weight(product.up) && alike(product.weight, product.up));
}

MmaWork mma_work(const LinearCall& call) {
  const Weight& weight = call.product.weight;
  const DeviceLimits& limits = state_of(call.ctx).limits();
  return {.n = weight.data.shape[0] * kTileHeight * (call.product.gated() ? 2 : 1),
          .pairs = pairs_of(weight),
          .m = call.m,
          .tile_bytes = bytes_of(tile_box_sizes(weight)).all(),
          .table_bytes = weight.format == Format::nf4 ? kNf4TableBytes : 0,
          .multiprocessors = limits.multiprocessors,
          .shared_bytes = limits.shared_bytes};
}

MmaLaunch mma_launch_of(const MmaWork& work, const MmaPlan& plan) {
  return {.plan = plan,
          .shared_bytes = mma_shared_bytes(work, plan),
          .scratch_bytes = 4 * std::max(most_mma_part_floats(work), plan.part_floats())};
}

MmaLaunch plan_mma(const LinearCall& call) {
  const MmaWork work = mma_work(call);
  return mma_launch_of(work, plan_mma(work));
}

void run_mma(const LinearCall& call, const MmaLaunch& launch, void* scratch) {
  const Product& product = call.product;
  const MmaPlan& plan = launch.plan;
  const Tensor x = *as_matrix(product.x);
  const Weight& weight = product.weight;
  const Weight& second = product.gated() ? product.up : weight;
  const TileBoxes boxes = tile_box_sizes(weight);
  const MmaArgs args{.weights = {argument(weight), argument(second)},
                     .bytes = bytes_of(boxes),
                     .scale_shift = boxes.scale_shift,
                     .tiles = static_cast<int>(weight.data.shape[0]),
                     .pairs = pairs_of(weight),
                     .plan = plan,
                     .x = MatrixRows(x),
                     .k = static_cast<int>(x.shape[1]),
                     .x_aligned = rows_begin_on_vectors(x) && x.shape[1] % 8 == 0,
                     .output = {.epilogue = epilogue_of(product),
                                .row_scales = {weight.row_scales.ptr<const float>(),
                                               second.row_scales.ptr<const float>()},
                                .gated = product.gated(),
                                .vectors = weight.out_features % kEight == 0 &&
                                           in_vectors(product.out) && in_vectors(product.residual),
                                .m = static_cast<int>(x.shape[0]),
                                .n = weight.out_features,
                                .parts = static_cast<float*>(scratch),
                                .counters = plan.whole_tiles() ? nullptr
                                                               : state_of(call.ctx).counters() +
                                                                     State::kWorkCounters}};
  const Grid grid{.blocks = plan.blocks,
                  .threads = kMmaThreads,
                  .shared_bytes = launch.shared_bytes,
                  .overlaps = state_of(call.ctx).limits().capability >= 90};
  const auto start = x.dtype == DType::f16 ? mma_f16 : mma_bf16;
  start(Launch(call.ctx, "linear"), grid, weight.format, scale_mode(weight), args);
}

}  // namespace tessera::cuda
