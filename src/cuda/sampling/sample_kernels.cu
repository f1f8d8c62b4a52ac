// Draws tokens, in two to five kernels. A draw is from one row. Long rows are cut into parts, one
// block each:
//
//   largest_of_parts   the largest key of each part (sort_keys.cuh)
//   weigh_bins         with top-k or top-p: count and weight of the logits in each bin, by their
//                      difference from the largest; the block that finishes last finds the bins
//                      that hold the end of the head
//   list_keys          the keys of these bins, in any order
//   find_thresholds    a block for each draw: the last key that is kept (sample_head.cuh)
//   write_largest      if sample() wants the most likely token: nothing else follows
//   draw_tokens        the weight that is kept of each part; the block that finishes last finds the
//                      part in which the random number falls, and the token in it
//
// sample_rows() launches all kernels but write_largest, because the needs of its draws are known
// only on the GPU. A block ends at once if its draw does not need it. On Hopper, draws without
// top-k and top-p take a single kernel (hopper/draw_whole.cu).
//
// Weights are whole numbers (core/sample_weight.h), so that atomic additions give the same sums in
// every order, and the same as the CPU's.
#include "cuda/sampling/sample_kernels.h"

#include "core/rows.h"
#include "core/sample_weight.h"
#include "core/type_switch.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/state.h"
#include "cuda/sampling/hopper/draw_whole.h"
#include "cuda/sampling/sample_call.cuh"
#include "cuda/sampling/sample_head.cuh"
#include "cuda/tile/block_reduce.cuh"
#include "cuda/tile/grid_dependency.cuh"
#include "cuda/tile/last_block.cuh"

namespace tessera::cuda {
namespace {

constexpr int kPartThreads = 256, kPartWarps = kPartThreads / kWarp;
constexpr int kPerThread = kSamplePart / kPartThreads;
static_assert(kMostLogits <= kSamplePart * 2 * kPartThreads);  // two parts for each thread

// ---- the largest, the bins ----------------------------------------------------------------------

template <typename T>
__global__ void __launch_bounds__(kPartThreads) largest_of_parts(SampleCall call) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  for (std::int64_t b = blockIdx.x; b < call.draws * call.parts; b += gridDim.x) {
    const std::int64_t d = b / call.parts, part = b % call.parts;
    const DrawSetup setup = call.setup(d);
    // For the kernels that follow.
    for (std::int64_t i = part * kPartThreads + threadIdx.x; setup.head && i < kSampleBins;
         i += call.parts * kPartThreads) {
      call.scratch.bin_weights[d * kSampleBins + i] = 0;
      call.scratch.bin_counts[d * kSampleBins + i] = 0;
    }
    Key largest = 0;
    if (setup.row >= 0) {
      call.part_keys<T>(setup.row, part).for_each([&](Key key) {
        if (key > largest) largest = key;
      });
    }
    largest = block_reduce<kPartWarps>(largest, Max());
    if (threadIdx.x != 0) continue;
    call.scratch.largest[b] = largest;
    if (part == 0) call.scratch.arrived[d] = 0;
  }
}

// Chooses the bins whose keys are listed. With top-k: all up to the one in which the head ends,
// because top-p may shorten the head. Else: only that one. None if there are too many keys.
__device__ void choose_listed(const SampleCall& call, std::int64_t d, const DrawSetup& setup) {
  constexpr int kEach = kSampleBins / kPartThreads;
  const std::int64_t begin = kEach * std::int64_t{threadIdx.x};
  const Key* const weights = call.scratch.bin_weights + d * kSampleBins + begin;
  const std::uint32_t* const counts = call.scratch.bin_counts + d * kSampleBins + begin;
  Key weight = 0, count = 0;
  for (int i = 0; i < kEach; ++i) {
    weight += weights[i];
    count += counts[i];
  }
  const auto weighed = block_scan<kPartWarps>(weight);
  const auto counted = block_scan<kPartWarps>(count);
  const bool by_count = setup.top_k > 0;
  const Key wanted = by_count ? setup.top_k : weight_share(weighed.total, setup.top_p);
  Key before = by_count ? counted.before : weighed.before, counted_before = counted.before;
  for (int i = 0; i < kEach; ++i) {
    const Key here = by_count ? counts[i] : weights[i];
    if (before < wanted && wanted <= before + here) {
      const Key listed = counts[i] + (by_count ? counted_before : 0);
      const auto bin = static_cast<std::int32_t>(begin + i);
      const bool fits = listed <= kSampleListed;
      call.scratch.listed_bins[2 * d] = !fits ? 1 : by_count ? 0 : bin;
      call.scratch.listed_bins[2 * d + 1] = fits ? bin : 0;
      call.scratch.n_listed[d] = 0;
    }
    before += here;
    counted_before += counts[i];
  }
}

template <typename T>
__global__ void __launch_bounds__(kPartThreads) weigh_bins(SampleCall call) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  __shared__ SharedWeights<kSampleBins> weights;
  __shared__ std::uint32_t counts[kSampleBins];
  for (std::int64_t b = blockIdx.x; b < call.draws * call.parts; b += gridDim.x) {
    const std::int64_t d = b / call.parts;
    const DrawSetup setup = call.setup(d);
    if (!setup.head) continue;
    const LargestLogit largest = largest_of_draw<kPartWarps>(call, d);
    if (largest.is_bad()) continue;
    for (int i = static_cast<int>(threadIdx.x); i < kSampleBins; i += kPartThreads) {
      weights.low[i] = weights.high[i] = counts[i] = 0;
    }
    __syncthreads();
    call.part_keys<T>(setup.row, b % call.parts).for_each_value([&](float logit, std::int64_t) {
      const int bin = largest.bin(logit);
      const Key weight = largest.weight(logit, setup.scale);
      if (weight > 0) weights.add(bin, weight);
      atomicAdd(&counts[bin], 1u);
    });
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kSampleBins; i += kPartThreads) {
      if (counts[i] == 0) continue;
      const Key weight = weights.at(i);
      if (weight > 0) atomicAdd(&call.scratch.bin_weights[d * kSampleBins + i], weight);
      atomicAdd(&call.scratch.bin_counts[d * kSampleBins + i], counts[i]);
    }
    if (comes_last(call.scratch.arrived + d, static_cast<int>(call.parts))) {
      choose_listed(call, d, setup);
    }
    __syncthreads();
  }
}

template <typename T>
__global__ void __launch_bounds__(kPartThreads) list_keys(SampleCall call) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  for (std::int64_t b = blockIdx.x; b < call.draws * call.parts; b += gridDim.x) {
    const std::int64_t d = b / call.parts;
    const DrawSetup setup = call.setup(d);
    if (!setup.head) continue;
    const LargestLogit largest = largest_of_draw<kPartWarps>(call, d);
    if (largest.is_bad()) continue;
    const std::int32_t first = call.scratch.listed_bins[2 * d];
    const std::int32_t last = call.scratch.listed_bins[2 * d + 1];
    call.part_keys<T>(setup.row, b % call.parts)
        .for_each_value([&](float logit, std::int64_t index) {
          const int bin = largest.bin(logit);
          if (bin < first || bin > last) return;
          const std::int32_t at = atomicAdd(call.scratch.n_listed + d, 1);
          call.scratch.listed[d * kSampleListed + at] = key_of(logit, index);
        });
  }
}

template <typename T>
__global__ void __launch_bounds__(kHeadThreads) find_thresholds(SampleCall call) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  __shared__ HeadRoom room;
  for (std::int64_t d = blockIdx.x; d < call.draws; d += gridDim.x) {
    const DrawSetup setup = call.setup(d);
    if (!setup.head) continue;
    const LargestLogit largest = largest_of_draw<kHeadWarps>(call, d);
    if (largest.is_bad()) continue;
    HeadSearch<T> search(call, d, setup, largest, room);
    SampleHead head{0, setup.top_p < 1 ? search.total() : 0};
    if (setup.top_k > 0) head = search.template find<false>(setup.top_k);
    if (setup.top_p < 1) head = search.template find<true>(weight_share(head.weight, setup.top_p));
    if (threadIdx.x == 0) call.scratch.threshold[d] = head.last;
  }
}

// ---- the draw -----------------------------------------------------------------------------------

template <typename T, typename Index>
class Draw {
 public:
  __device__ Draw(const SampleCall& call, std::int64_t d, const DrawSetup& setup,
                  LargestLogit largest)
      : call_(call),
        d_(d),
        setup_(setup),
        largest_(largest),
        threshold_(setup.head ? call.scratch.threshold[d] : 0) {}

  __device__ Key kept_weight(float logit, std::int64_t index) const {
    if (key_of(logit, index) < threshold_) return 0;
    const Key weight = largest_.weight(logit, setup_.scale);
    return weight >= setup_.least ? weight : 0;
  }

  __device__ Key weight_of_part(std::int64_t part) const {
    Key weight = 0;
    call_.part_keys<T>(setup_.row, part).for_each_value([&](float logit, std::int64_t index) {
      weight += kept_weight(logit, index);
    });
    // With whole numbers, a scan's total is the sum.
    return block_scan<kPartWarps>(weight).total;
  }

  // Called by one block, once the weight of every part has been written.
  __device__ void draw(Index* id) const {
    __shared__ std::int64_t part;
    __shared__ Key rest;
    Key mine[2];
    for (int i = 0; i < 2; ++i) {
      const std::int64_t p = 2 * std::int64_t{threadIdx.x} + i;
      mine[i] = p < call_.parts ? call_.scratch.weights[d_ * call_.parts + p] : 0;
    }
    const auto parts = block_scan<kPartWarps>(mine[0] + mine[1]);
    const Key target = multiply_high(draw_bits(setup_.seed, setup_.draw), parts.total);
    Key before = parts.before;
    for (int i = 0; i < 2; ++i) {
      if (before <= target && target < before + mine[i]) {
        part = 2 * std::int64_t{threadIdx.x} + i;
        rest = target - before;
      }
      before += mine[i];
    }
    __syncthreads();
    draw_from_part(part, rest, id);
    __syncthreads();  // the shared numbers are free
  }

 private:
  __device__ void draw_from_part(std::int64_t part, Key target, Index* id) const {
    const T* logits = call_.logits.row<const T>(setup_.row);
    const std::int64_t begin = part * kSamplePart + kPerThread * std::int64_t{threadIdx.x};
    Key mine[kPerThread], own = 0;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const std::int64_t at = begin + i;
      mine[i] = at < call_.logits.cols() ? kept_weight(to_f32(logits[at]), at) : 0;
      own += mine[i];
    }
    Key before = block_scan<kPartWarps>(own).before;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      if (before <= target && target < before + mine[i]) *id = static_cast<Index>(begin + i);
      before += mine[i];
    }
  }

  const SampleCall& call_;
  std::int64_t d_;
  const DrawSetup& setup_;
  LargestLogit largest_;
  Key threshold_;
};

template <typename T, typename Index>
__global__ void __launch_bounds__(kPartThreads) draw_tokens(SampleCall call, Rows ids) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  for (std::int64_t b = blockIdx.x; b < call.draws * call.parts; b += gridDim.x) {
    const std::int64_t d = b / call.parts, part = b % call.parts;
    const DrawSetup setup = call.setup(d);
    if (setup.greedy && part > 0) continue;
    // Ids have no dimension for the logits: they are numbered over all rows.
    Index* const id = ids.row<Index>(d / ids.cols()) + d % ids.cols();
    const LargestLogit largest = largest_of_draw<kPartWarps>(call, d);
    if (largest.is_bad() || setup.greedy) {
      if (part == 0 && threadIdx.x == 0) *id = token_of<Index>(largest);
      continue;
    }
    const Draw<T, Index> draw(call, d, setup, largest);
    const Key weight = draw.weight_of_part(part);
    if (threadIdx.x == 0) call.scratch.weights[b] = weight;
    if (comes_last(call.scratch.arrived + d, static_cast<int>(call.parts))) draw.draw(id);
  }
}

// The most likely token of each draw.
template <typename Index>
__global__ void __launch_bounds__(kPartThreads) write_largest(SampleCall call, Rows ids) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  for (std::int64_t d = blockIdx.x; d < call.draws; d += gridDim.x) {
    const LargestLogit largest = largest_of_draw<kPartWarps>(call, d);
    if (threadIdx.x != 0) continue;
    ids.row<Index>(d / ids.cols())[d % ids.cols()] = token_of<Index>(largest);
  }
}

// ---- launches -----------------------------------------------------------------------------------

struct Grids {
  Grids(Context& ctx, const SampleCall& call)
      : draws(call.draws),
        overlaps(state_of(ctx).limits().capability >= 90),
        by_part{.blocks = call.draws * call.parts, .threads = kPartThreads, .overlaps = overlaps} {}

  Grid by_draw(unsigned threads) const {
    return {.blocks = draws, .threads = threads, .overlaps = overlaps};
  }

  std::int64_t draws;
  bool overlaps;
  Grid by_part;
};

template <typename T>
void launch_head(const Launch& launch, const Grids& grids, const SampleCall& call) {
  launch(weigh_bins<T>, grids.by_part, call);
  launch(list_keys<T>, grids.by_part, call);
  launch(find_thresholds<T>, grids.by_draw(kHeadThreads), call);
}

}  // namespace

void launch_sample(Context& ctx, const SampleArgs& args, const SampleScratch& scratch) {
  const SampleCall call(args, scratch);
  const DrawSetup& common = call.common;
  if (!common.head && !common.greedy && takes_whole_draw(ctx, call.draws, call.logits.cols())) {
    return launch_whole_draw(ctx, args);
  }
  const Grids grids(ctx, call);
  const Launch launch(ctx, "sample");
  with_float_type(args.logits.dtype, [&](auto element) {
    using T = decltype(element);
    launch(largest_of_parts<T>, grids.by_part, call);
    if (common.head) launch_head<T>(launch, grids, call);
    with_index_type(args.ids.dtype, [&](auto index) {
      using Index = decltype(index);
      if (common.greedy) {
        return launch(write_largest<Index>, grids.by_draw(kPartThreads), call, Rows(args.ids));
      }
      launch(draw_tokens<T, Index>, grids.by_part, call, Rows(args.ids));
    });
  });
}

void launch_sample_rows(Context& ctx, const SampleRowsArgs& args, const SampleScratch& scratch) {
  const SampleCall call(args, scratch);
  if (args.kind == SampleRowsArgs::Kind::whole &&
      takes_whole_draw(ctx, call.draws, call.logits.cols())) {
    return launch_whole_draw(ctx, args);
  }
  const Grids grids(ctx, call);
  const Launch launch(ctx, "sample_rows");
  launch(largest_of_parts<float>, grids.by_part, call);
  if (args.kind == SampleRowsArgs::Kind::greedy) {
    launch(write_largest<std::int32_t>, grids.by_draw(kPartThreads), call, Rows(args.ids));
    return;
  }
  if (args.kind == SampleRowsArgs::Kind::any) launch_head<float>(launch, grids, call);
  launch(draw_tokens<float, std::int32_t>, grids.by_part, call, Rows(args.ids));
}

}  // namespace tessera::cuda
