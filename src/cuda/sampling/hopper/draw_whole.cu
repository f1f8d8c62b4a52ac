// Draws a token from a whole row (no top-k, no top-p) in one kernel. Eight blocks of a cluster
// divide a row, and tell each other two numbers:
//
//   blocks     | slice 0 | slice 1 | ...  | slice 7 |   logits of the row, rising ids
//   threads    | 7 | 7 | 7 | ...                        neighbouring logits each
//
//   1. the largest logit of each slice      -> every block
//   2. the weight of each slice             -> every block
//   3. the thread in whose logits the random number falls finds the token
//
// sample_kernels.cu does this in two kernels, which exchange these numbers through memory.
#include "cuda/sampling/hopper/draw_whole.h"

#include <algorithm>

#include "core/type_switch.h"
#include "cuda/runtime/hopper_kernels.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/state.h"
#include "cuda/sampling/sample_call.cuh"
#include "cuda/tile/block_reduce.cuh"
#include "cuda/tile/grid_dependency.cuh"
#include "cuda/tile/hopper/cluster.cuh"

namespace tessera::cuda {
namespace {

constexpr int kBlocks = 8;  // the most that every GPU has in a cluster
constexpr int kThreads = 1024, kWarps = kThreads / kWarp;

// The logits of one block, in whole pieces but for the last slice.
struct Slice {
  std::int64_t begin, end;
  std::int64_t each;  // of a thread

  __device__ Slice(std::int64_t logits, int rank) {
    constexpr std::int64_t kPiece = 8, kOfBlocks = kBlocks * kPiece;
    const std::int64_t size = (logits + kOfBlocks - 1) / kOfBlocks * kPiece;
    begin = rank * size < logits ? rank * size : logits;
    end = begin + size < logits ? begin + size : logits;
    each = (size + kThreads - 1) / kThreads;
  }
  __device__ std::int64_t first_of_thread() const { return begin + each * threadIdx.x; }
};

// Writes a number to one place in every block of the cluster. A following cluster_sync() shows it.
__device__ void tell_all(Key number, Key* place) {
  if (threadIdx.x < kBlocks) {
    tile::store_at(tile::shared_of(static_cast<int>(threadIdx.x), place), number);
  }
}

template <typename T, typename Index>
__global__ void __launch_bounds__(kThreads) draw_whole(SampleCall call, Rows ids) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __shared__ Key largest_of[kBlocks], weight_of[kBlocks];
  let_next_kernel_start();
  tile::cluster_meet();  // the others have started, so they can be told numbers
  wait_for_earlier_kernels();
  const int rank = tile::cluster_rank();
  const std::int64_t d = blockIdx.x / kBlocks, row = call.row_of(d);
  const Slice slice(call.logits.cols(), rank);

  Key largest = 0;
  if (row >= 0) {
    ElementKeys<T>{call.logits.row<const T>(row), slice.begin, slice.end}.for_each([&](Key key) {
      if (key > largest) largest = key;
    });
  }
  tell_all(block_reduce<kWarps>(largest, Max()), &largest_of[rank]);
  const DrawSetup setup = call.setup(d);
  tile::cluster_sync();
  largest = largest_of[0];
  for (int b = 1; b < kBlocks; ++b) largest = Max()(largest, largest_of[b]);

  const LargestLogit reference{setup.row >= 0 ? largest : 0};
  // Ids have no dimension for the logits: they are numbered over all rows.
  Index* const id = ids.row<Index>(d / ids.cols()) + d % ids.cols();
  if (reference.is_bad() || setup.greedy) {  // in all blocks of the cluster
    if (rank == 0 && threadIdx.x == 0) *id = token_of<Index>(reference);
    return;
  }

  const T* const logits = call.logits.row<const T>(row);
  const auto weight_at = [&](std::int64_t at) {
    const Key weight = reference.weight(to_f32(logits[at]), setup.scale);
    return weight >= setup.least ? weight : 0;
  };
  const std::int64_t begin = slice.first_of_thread();
  const std::int64_t end = begin + slice.each < slice.end ? begin + slice.each : slice.end;
  Key own = 0;
#pragma unroll 8  // so that several loads are in flight
  for (std::int64_t at = begin; at < end; ++at) own += weight_at(at);
  const auto of_block = block_scan<kWarps>(own);
  tell_all(of_block.total, &weight_of[rank]);
  tile::cluster_sync();

  Key before = of_block.before, total = 0;
  for (int b = 0; b < kBlocks; ++b) {
    if (b < rank) before += weight_of[b];
    total += weight_of[b];
  }
  const Key target = multiply_high(draw_bits(setup.seed, setup.draw), total);
  if (target < before || target >= before + own) return;  // in another thread's logits
  std::int64_t at = begin;
  for (Key weight = weight_at(at); target >= before + weight; weight = weight_at(at)) {
    before += weight;
    ++at;
  }
  *id = static_cast<Index>(at);
#endif
}

template <typename T, typename Index>
void launch(Context& ctx, const char* name, const SampleCall& call, const Tensor& ids) {
  const Launch start(ctx, name);
  start(draw_whole<T, Index>,
        {.blocks = call.draws * kBlocks, .threads = kThreads, .overlaps = true, .cluster = kBlocks},
        call, Rows(ids));
}

}  // namespace

// With more draws or longer rows, the two kernels with more blocks are faster.
bool takes_whole_draw(Context& ctx, std::int64_t draws, std::int64_t logits) {
  constexpr std::int64_t kMostOfRow = 1 << 16;
  return draws == 1 && logits <= kMostOfRow && has_hopper_kernels(state_of(ctx).limits());
}

void launch_whole_draw(Context& ctx, const SampleArgs& args) {
  const SampleCall call(args, {});
  with_float_type(args.logits.dtype, [&](auto element) {
    with_index_type(args.ids.dtype, [&](auto index) {
      launch<decltype(element), decltype(index)>(ctx, "sample", call, args.ids);
    });
  });
}

void launch_whole_draw(Context& ctx, const SampleRowsArgs& args) {
  launch<float, std::int32_t>(ctx, "sample_rows", SampleCall(args, {}), args.ids);
}

}  // namespace tessera::cuda
