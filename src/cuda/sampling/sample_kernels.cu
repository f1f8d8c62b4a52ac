// Draws a token of each row, in two to five kernels. Long rows are cut into parts, one block each:
//
//   largest_of_parts   the largest key of each part (sort_keys.cuh)
//   weigh_bins         with top-k or top-p: count and weight of the logits in each bin, by their
//                      difference from the largest; the block that finishes last finds the bins
//                      that hold the end of the head
//   list_keys          the keys of these bins, in any order
//   find_thresholds    a block for each row: the last key that is kept (sample_head.cuh)
//   write_largest      where the most likely token is asked for, nothing else follows
//   draw_tokens        the weight that is kept of each part; the block that finishes last finds the
//                      part in which the random number falls, and the token in it
//
// Weights are whole numbers (core/sample_weight.h), so that atomic additions give the same sums in
// every order, and the CPU's.
#include "cuda/sampling/sample_kernels.h"

#include "core/rows.h"
#include "core/sample_weight.h"
#include "core/type_switch.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/state.h"
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
  for (std::int64_t b = blockIdx.x; b < call.logits.rows() * call.parts; b += gridDim.x) {
    const std::int64_t row = b / call.parts, part = b % call.parts;
    // For the kernels that follow.
    for (std::int64_t i = part * kPartThreads + threadIdx.x; call.head && i < kSampleBins;
         i += call.parts * kPartThreads) {
      call.scratch.bin_weights[row * kSampleBins + i] = 0;
      call.scratch.bin_counts[row * kSampleBins + i] = 0;
    }
    Key largest = 0;
    call.part_keys<T>(row, part).for_each([&](Key key) {
      if (key > largest) largest = key;
    });
    largest = block_reduce<kPartWarps>(largest, Max());
    if (threadIdx.x != 0) continue;
    call.scratch.largest[b] = largest;
    if (part == 0) call.scratch.arrived[row] = 0;
  }
}

// Which bins' keys are listed. With top-k: all up to the one in which the head ends, because top-p
// may cut it again. Else: that one. None where there are too many keys.
__device__ void choose_listed(const SampleCall& call, std::int64_t row) {
  constexpr int kEach = kSampleBins / kPartThreads;
  const std::int64_t begin = kEach * std::int64_t{threadIdx.x};
  const Key* const weights = call.scratch.bin_weights + row * kSampleBins + begin;
  const std::uint32_t* const counts = call.scratch.bin_counts + row * kSampleBins + begin;
  Key weight = 0, count = 0;
  for (int i = 0; i < kEach; ++i) {
    weight += weights[i];
    count += counts[i];
  }
  const auto weighed = block_scan<kPartWarps>(weight);
  const auto counted = block_scan<kPartWarps>(count);
  const bool by_count = call.top_k > 0;
  const Key wanted = by_count ? call.top_k : weight_share(weighed.total, call.top_p);
  Key before = by_count ? counted.before : weighed.before, counted_before = counted.before;
  for (int i = 0; i < kEach; ++i) {
    const Key here = by_count ? counts[i] : weights[i];
    if (before < wanted && wanted <= before + here) {
      const Key listed = counts[i] + (by_count ? counted_before : 0);
      const auto bin = static_cast<std::int32_t>(begin + i);
      const bool fits = listed <= kSampleListed;
      call.scratch.listed_bins[2 * row] = !fits ? 1 : by_count ? 0 : bin;
      call.scratch.listed_bins[2 * row + 1] = fits ? bin : 0;
      call.scratch.n_listed[row] = 0;
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
  for (std::int64_t b = blockIdx.x; b < call.logits.rows() * call.parts; b += gridDim.x) {
    const std::int64_t row = b / call.parts;
    const LargestLogit largest = largest_of_row<kPartWarps>(call, row);
    if (largest.is_bad()) continue;
    for (int i = static_cast<int>(threadIdx.x); i < kSampleBins; i += kPartThreads) {
      weights.low[i] = weights.high[i] = counts[i] = 0;
    }
    __syncthreads();
    call.part_keys<T>(row, b % call.parts).for_each_value([&](float logit, std::int64_t) {
      const int bin = largest.bin(logit);
      const Key weight = largest.weight(logit, call.scale);
      if (weight > 0) weights.add(bin, weight);
      atomicAdd(&counts[bin], 1u);
    });
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kSampleBins; i += kPartThreads) {
      if (counts[i] == 0) continue;
      const Key weight = weights.at(i);
      if (weight > 0) atomicAdd(&call.scratch.bin_weights[row * kSampleBins + i], weight);
      atomicAdd(&call.scratch.bin_counts[row * kSampleBins + i], counts[i]);
    }
    if (comes_last(call.scratch.arrived + row, static_cast<int>(call.parts))) {
      choose_listed(call, row);
    }
    __syncthreads();
  }
}

template <typename T>
__global__ void __launch_bounds__(kPartThreads) list_keys(SampleCall call) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  for (std::int64_t b = blockIdx.x; b < call.logits.rows() * call.parts; b += gridDim.x) {
    const std::int64_t row = b / call.parts;
    const LargestLogit largest = largest_of_row<kPartWarps>(call, row);
    if (largest.is_bad()) continue;
    const std::int32_t first = call.scratch.listed_bins[2 * row];
    const std::int32_t last = call.scratch.listed_bins[2 * row + 1];
    call.part_keys<T>(row, b % call.parts).for_each_value([&](float logit, std::int64_t index) {
      const int bin = largest.bin(logit);
      if (bin < first || bin > last) return;
      const std::int32_t at = atomicAdd(call.scratch.n_listed + row, 1);
      call.scratch.listed[row * kSampleListed + at] = key_of(logit, index);
    });
  }
}

template <typename T>
__global__ void __launch_bounds__(kHeadThreads) find_thresholds(SampleCall call) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  __shared__ HeadRoom room;
  for (std::int64_t row = blockIdx.x; row < call.logits.rows(); row += gridDim.x) {
    const LargestLogit largest = largest_of_row<kHeadWarps>(call, row);
    if (largest.is_bad()) continue;
    HeadSearch<T> search(call, row, largest, room);
    SampleHead head{0, call.top_p < 1 ? search.total() : 0};
    if (call.top_k > 0) head = search.template find<false>(call.top_k);
    if (call.top_p < 1) head = search.template find<true>(weight_share(head.weight, call.top_p));
    if (threadIdx.x == 0) call.scratch.threshold[row] = head.last;
  }
}

// ---- the draw -----------------------------------------------------------------------------------

template <typename T, typename Index>
class Draw {
 public:
  __device__ Draw(const SampleCall& call, std::int64_t row, LargestLogit largest)
      : call_(call),
        row_(row),
        largest_(largest),
        threshold_(call.head ? call.scratch.threshold[row] : 0) {}

  __device__ Key kept_weight(float logit, std::int64_t index) const {
    if (key_of(logit, index) < threshold_) return 0;
    const Key weight = largest_.weight(logit, call_.scale);
    return weight >= call_.least ? weight : 0;
  }

  __device__ Key weight_of_part(std::int64_t part) const {
    Key weight = 0;
    call_.part_keys<T>(row_, part).for_each_value([&](float logit, std::int64_t index) {
      weight += kept_weight(logit, index);
    });
    // With whole numbers, a scan's total is the sum.
    return block_scan<kPartWarps>(weight).total;
  }

  // Called by one block, when the weight of every part has been written.
  __device__ void draw(Index* id) const {
    __shared__ std::int64_t part;
    __shared__ Key rest;
    Key mine[2];
    for (int i = 0; i < 2; ++i) {
      const std::int64_t p = 2 * std::int64_t{threadIdx.x} + i;
      mine[i] = p < call_.parts ? call_.scratch.weights[row_ * call_.parts + p] : 0;
    }
    const auto parts = block_scan<kPartWarps>(mine[0] + mine[1]);
    const Key target = multiply_high(
        draw_bits(call_.seed, call_.draw + static_cast<std::uint64_t>(row_)), parts.total);
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
    const T* logits = call_.logits.row<const T>(row_);
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
  std::int64_t row_;
  LargestLogit largest_;
  Key threshold_;
};

template <typename T, typename Index>
__global__ void __launch_bounds__(kPartThreads) draw_tokens(SampleCall call, Rows ids) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  for (std::int64_t b = blockIdx.x; b < call.logits.rows() * call.parts; b += gridDim.x) {
    const std::int64_t row = b / call.parts, part = b % call.parts;
    // Ids have no dimension for the logits: they are numbered over all rows.
    Index* const id = ids.row<Index>(row / ids.cols()) + row % ids.cols();
    const LargestLogit largest = largest_of_row<kPartWarps>(call, row);
    if (largest.is_bad()) {
      if (part == 0 && threadIdx.x == 0) *id = -1;
      continue;
    }
    const Draw<T, Index> draw(call, row, largest);
    const Key weight = draw.weight_of_part(part);
    if (threadIdx.x == 0) call.scratch.weights[b] = weight;
    if (comes_last(call.scratch.arrived + row, static_cast<int>(call.parts))) draw.draw(id);
  }
}

// The most likely token.
template <typename Index>
__global__ void __launch_bounds__(kPartThreads) write_largest(SampleCall call, Rows ids) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  for (std::int64_t row = blockIdx.x; row < call.logits.rows(); row += gridDim.x) {
    const LargestLogit largest = largest_of_row<kPartWarps>(call, row);
    if (threadIdx.x != 0) continue;
    const std::int64_t id = largest.is_bad() ? -1 : index_of(largest.key);
    ids.row<Index>(row / ids.cols())[row % ids.cols()] = static_cast<Index>(id);
  }
}

}  // namespace

bool keeps_head(const SampleArgs& args) {
  const bool top_k = args.top_k > 0 && args.top_k < args.logits.size(-1);
  return args.temperature > 0 && (top_k || args.top_p < 1);
}

void sample_rows(Context& ctx, const SampleArgs& args, const SampleScratch& scratch) {
  const Rows logits(args.logits);
  const std::int64_t parts = sample_parts_of(logits.cols());
  const bool greedy = args.temperature == 0, head = keeps_head(args);
  const bool top_k = args.top_k > 0 && args.top_k < logits.cols();
  const SampleCall call{.logits = logits,
                        .parts = parts,
                        .scratch = scratch,
                        .scale = weight_scale(greedy ? 1.0 : args.temperature),
                        .head = head,
                        .top_k = top_k ? static_cast<std::uint64_t>(args.top_k) : 0,
                        .top_p = args.top_p,
                        .least = least_weight(args.min_p),
                        .seed = args.seed,
                        .draw = args.draw};
  const bool overlaps = state_of(ctx).limits().capability >= 90;
  const Grid by_part{
      .blocks = logits.rows() * parts, .threads = kPartThreads, .overlaps = overlaps};
  const auto by_row = [&](unsigned threads) {
    return Grid{.blocks = logits.rows(), .threads = threads, .overlaps = overlaps};
  };
  const Launch launch(ctx, "sample");
  with_float_type(args.logits.dtype, [&](auto element) {
    using T = decltype(element);
    launch(largest_of_parts<T>, by_part, call);
    if (head) {
      launch(weigh_bins<T>, by_part, call);
      launch(list_keys<T>, by_part, call);
      launch(find_thresholds<T>, by_row(kHeadThreads), call);
    }
    with_index_type(args.ids.dtype, [&](auto index) {
      using Index = decltype(index);
      if (greedy) return launch(write_largest<Index>, by_row(kPartThreads), call, Rows(args.ids));
      launch(draw_tokens<T, Index>, by_part, call, Rows(args.ids));
    });
  });
}

}  // namespace tessera::cuda
