// A token of each row, in at most four kernels. Long rows are cut into parts, a block for each:
//
//   largest_of_parts   the largest key of each part (sort_keys.cuh)
//   weigh_bins         with top-k or top-p: how many logits, and of what weight, lie in each bin of
//                      their difference from the largest one
//   find_thresholds    with top-k or top-p, a block for each row: the bin in which the head of the
//                      order ends, and of the bin's own keys the last that is kept
//   draw_tokens        the weight that is kept of each part; the block that comes last finds the
//                      part in which the random number falls, and in it the token
//
// Weights are whole numbers (core/sample_weight.h), so that atomic additions give the same sums in
// every order, and the CPU's.
#include "cuda/sample_kernels.h"

#include "core/rows.h"
#include "core/sample_weight.h"
#include "core/type_switch.h"
#include "cuda/block_reduce.cuh"
#include "cuda/launch.h"
#include "cuda/sort_keys.cuh"
#include "cuda/tile/last_block.cuh"

namespace tessera::cuda {
namespace {

constexpr int kPartThreads = 256, kPartWarps = kPartThreads / kWarp;
constexpr int kPerThread = kSamplePart / kPartThreads;
constexpr int kRowThreads = 1024, kRowWarps = kRowThreads / kWarp;
constexpr int kCandidates = 4096;  // 32 KiB of shared memory
constexpr float kBinsPerUnit = 64.f;
static_assert(kMostLogits <= kSamplePart * 2 * kPartThreads);  // two parts for each thread

struct SampleCall {
  Rows logits;
  std::int64_t parts;
  SampleScratch scratch;
  float scale;  // of differences: weight_scale()
  bool greedy, head;
  std::uint64_t top_k;  // 0: all
  double top_p;
  std::uint64_t least;  // weight, by min_p
  std::uint64_t seed, draw;

  template <typename T>
  __device__ ElementKeys<T> part_keys(std::int64_t row, std::int64_t part) const {
    const std::int64_t begin = part * kSamplePart, end = begin + kSamplePart;
    return {logits.row<const T>(row), begin, end < logits.cols() ? end : logits.cols()};
  }
};

// What all weights of a row are taken beside.
struct Largest {
  Key key;

  // NaN or infinite: no token can be drawn.
  __device__ bool is_bad() const {
    return value_bits(key) >= kInfinityBits || value_bits(key) <= kLeastBits;
  }
  __device__ std::uint64_t weight(float logit, float scale) const {
    return sample_weight(logit, value_of(key), scale);
  }
  // Falling logits, rising bins.
  __device__ int bin(float logit) const {
    const float place = (value_of(key) - logit) * kBinsPerUnit;
    return place < kSampleBins - 1 ? static_cast<int>(place) : kSampleBins - 1;
  }
};

template <int kWarps>
__device__ Largest largest_of_row(const SampleCall& call, std::int64_t row) {
  Key largest = 0;
  for (std::int64_t p = threadIdx.x; p < call.parts; p += blockDim.x) {
    const Key key = call.scratch.largest[row * call.parts + p];
    if (key > largest) largest = key;
  }
  return {block_reduce<kWarps>(largest, Max())};
}

// ---- the largest, the bins ----------------------------------------------------------------------

template <typename T>
__global__ void __launch_bounds__(kPartThreads) largest_of_parts(SampleCall call) {
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

// Weights added up in shared memory, which has atomic additions of 32 bits alone: most weights have
// no upper bits, and few additions overflow the lower ones.
template <int kSize>
struct SharedWeights {
  std::uint32_t low[kSize], high[kSize];

  __device__ void add(int i, Key weight) {
    const auto lower = static_cast<std::uint32_t>(weight);
    const std::uint32_t old = atomicAdd(&low[i], lower);
    const std::uint32_t upper =
        static_cast<std::uint32_t>(weight >> 32) + (old + lower < old ? 1u : 0u);
    if (upper != 0) atomicAdd(&high[i], upper);
  }
  __device__ Key at(int i) const { return static_cast<Key>(high[i]) << 32 | low[i]; }
};

template <typename T>
__global__ void __launch_bounds__(kPartThreads) weigh_bins(SampleCall call) {
  __shared__ SharedWeights<kSampleBins> weights;
  __shared__ std::uint32_t counts[kSampleBins];
  for (std::int64_t b = blockIdx.x; b < call.logits.rows() * call.parts; b += gridDim.x) {
    const std::int64_t row = b / call.parts;
    const Largest largest = largest_of_row<kPartWarps>(call, row);
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
    __syncthreads();
  }
}

// ---- where the head ends ------------------------------------------------------------------------

// The shared memory of a block that looks for the end.
struct Room {
  Key keys[kCandidates];
  SharedWeights<256> digit_weights;
  std::uint32_t digit_counts[256];
  std::uint32_t found;
  // What the thread that knows tells the others.
  int place;
  Key key, rest, weight;
  std::uint32_t count;
};

// The shortest head of a row's order that holds so many tokens, or so much weight.
struct Head {
  Key last;    // key
  Key weight;  // of all of it
};

template <typename T>
class HeadSearch {
 public:
  __device__ HeadSearch(const SampleCall& call, std::int64_t row, Largest largest, Room& room)
      : call_(call), row_(row), largest_(largest), room_(room) {}

  __device__ Key total() const {
    return block_scan<kRowWarps>(bin_weight(0) + bin_weight(1)).total;
  }

  // `wanted` is at least 1, and at most what the row has of it.
  template <bool kByWeight>
  __device__ Head find(Key wanted) {
    find_bin<kByWeight>(wanted);
    Key mask = 0, prefix = 0;
    for (int shift = 56; room_.count > kCandidates; shift -= 8) {
      find_digit<kByWeight>(shift, mask, prefix);
      mask |= Key{0xff} << shift;
      prefix |= static_cast<Key>(room_.place) << shift;
    }
    return find_key<kByWeight>(mask, prefix);
  }

 private:
  static constexpr int kBinsPerThread = kSampleBins / kRowThreads;
  static_assert(kBinsPerThread == 2);

  __device__ std::int64_t bin_at(int i) const {
    return row_ * kSampleBins + kBinsPerThread * threadIdx.x + i;
  }
  __device__ Key bin_weight(int i) const { return call_.scratch.bin_weights[bin_at(i)]; }
  __device__ Key bin_count(int i) const { return call_.scratch.bin_counts[bin_at(i)]; }
  // fn(key) for the thread's share of the bin's keys that begin with the prefix.
  template <typename F>
  __device__ void for_each(Key mask, Key prefix, F&& fn) const {
    const ElementKeys<T> all{call_.logits.row<const T>(row_), 0, call_.logits.cols()};
    all.for_each_value([&](float logit, std::int64_t index) {
      if (largest_.bin(logit) != bin_) return;
      const Key key = key_of(logit, index);
      if ((key & mask) == prefix) fn(key);
    });
  }
  __device__ Key weight_of(Key key) const { return largest_.weight(value_of(key), call_.scale); }

  // room: the bin's count; what is wanted of it; what all before it weigh.
  template <bool kByWeight>
  __device__ void find_bin(Key wanted) {
    const auto weights = block_scan<kRowWarps>(bin_weight(0) + bin_weight(1));
    const auto counts = block_scan<kRowWarps>(bin_count(0) + bin_count(1));
    Key before = kByWeight ? weights.before : counts.before, weight = weights.before;
    for (int i = 0; i < kBinsPerThread; ++i) {
      const Key here = kByWeight ? bin_weight(i) : bin_count(i);
      if (before < wanted && wanted <= before + here) {
        room_.place = kBinsPerThread * static_cast<int>(threadIdx.x) + i;
        room_.count = static_cast<std::uint32_t>(bin_count(i));
        room_.rest = wanted - before;
        room_.weight = weight;
      }
      before += here;
      weight += bin_weight(i);
    }
    __syncthreads();
    bin_ = room_.place;
  }

  // The same one level down: of keys that begin with the prefix, those with one next digit.
  template <bool kByWeight>
  __device__ void find_digit(int shift, Key mask, Key prefix) {
    __syncthreads();  // all have read what the room says
    for (int i = static_cast<int>(threadIdx.x); i < 256; i += kRowThreads) {
      room_.digit_weights.low[i] = room_.digit_weights.high[i] = room_.digit_counts[i] = 0;
    }
    __syncthreads();
    for_each(mask, prefix, [&](Key key) {
      const int digit = static_cast<int>(key >> shift & 0xff);
      room_.digit_weights.add(digit, weight_of(key));
      atomicAdd(&room_.digit_counts[digit], 1u);
    });
    __syncthreads();
    if (threadIdx.x == 0) {
      int digit = 255;
      for (;; --digit) {
        const Key weight = room_.digit_weights.at(digit);
        const Key here = kByWeight ? weight : room_.digit_counts[digit];
        if (room_.rest <= here) break;
        room_.rest -= here;
        room_.weight += weight;
      }
      room_.place = digit;
      room_.count = room_.digit_counts[digit];
    }
    __syncthreads();
  }

  // The rest fit: sorted, each thread adds up some of them.
  template <bool kByWeight>
  __device__ Head find_key(Key mask, Key prefix) {
    if (threadIdx.x == 0) room_.found = 0;
    __syncthreads();
    for_each(mask, prefix, [&](Key key) { room_.keys[atomicAdd(&room_.found, 1u)] = key; });
    int size = 1;
    while (size < static_cast<int>(room_.count)) size *= 2;
    for (int i = static_cast<int>(room_.count + threadIdx.x); i < size; i += kRowThreads) {
      room_.keys[i] = 0;
    }
    sort_falling(room_.keys, size);

    constexpr int kEach = kCandidates / kRowThreads;
    const int begin = kEach * static_cast<int>(threadIdx.x);
    const int end = min(begin + kEach, static_cast<int>(room_.count));
    Key own = 0;
    for (int i = begin; i < end; ++i) own += weight_of(room_.keys[i]);
    const Key rest = room_.rest;
    Key weight = block_scan<kRowWarps>(own).before, before = kByWeight ? weight : begin;
    for (int i = begin; i < end; ++i) {
      const Key here = weight_of(room_.keys[i]), measure = kByWeight ? here : 1;
      weight += here;
      if (before < rest && rest <= before + measure) {
        room_.key = room_.keys[i];
        room_.weight += weight;
      }
      before += measure;
    }
    __syncthreads();
    const Head head{room_.key, room_.weight};
    __syncthreads();  // the room is free
    return head;
  }

  const SampleCall& call_;
  std::int64_t row_;
  Largest largest_;
  Room& room_;
  int bin_ = 0;
};

template <typename T>
__global__ void __launch_bounds__(kRowThreads) find_thresholds(SampleCall call) {
  __shared__ Room room;
  for (std::int64_t row = blockIdx.x; row < call.logits.rows(); row += gridDim.x) {
    const Largest largest = largest_of_row<kRowWarps>(call, row);
    if (largest.is_bad()) continue;
    HeadSearch<T> search(call, row, largest, room);
    Head head{0, call.top_p < 1 ? search.total() : 0};
    if (call.top_k > 0) head = search.template find<false>(call.top_k);
    if (call.top_p < 1) head = search.template find<true>(weight_share(head.weight, call.top_p));
    if (threadIdx.x == 0) call.scratch.threshold[row] = head.last;
  }
}

// ---- the draw -----------------------------------------------------------------------------------

template <typename T, typename Index>
class Draw {
 public:
  __device__ Draw(const SampleCall& call, std::int64_t row, Largest largest)
      : call_(call),
        row_(row),
        largest_(largest),
        threshold_(call.greedy ? largest.key
                   : call.head ? call.scratch.threshold[row]
                               : 0) {}

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
    // In whole numbers, a scan's total is the sum.
    return block_scan<kPartWarps>(weight).total;
  }

  // By one block, when the weight of every part is there.
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
  Largest largest_;
  Key threshold_;
};

template <typename T, typename Index>
__global__ void __launch_bounds__(kPartThreads) draw_tokens(SampleCall call, Rows ids) {
  for (std::int64_t b = blockIdx.x; b < call.logits.rows() * call.parts; b += gridDim.x) {
    const std::int64_t row = b / call.parts, part = b % call.parts;
    // Ids have no dimension for the logits: they are counted through.
    Index* const id = ids.row<Index>(row / ids.cols()) + row % ids.cols();
    const Largest largest = largest_of_row<kPartWarps>(call, row);
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
                        .greedy = greedy,
                        .head = head,
                        .top_k = top_k ? static_cast<std::uint64_t>(args.top_k) : 0,
                        .top_p = args.top_p,
                        .least = least_weight(args.min_p),
                        .seed = args.seed,
                        .draw = args.draw};
  const Grid by_part{.blocks = logits.rows() * parts, .threads = kPartThreads};
  const Launch launch(ctx, "sample");
  with_float_type(args.logits.dtype, [&](auto element) {
    using T = decltype(element);
    launch(largest_of_parts<T>, by_part, call);
    if (head) {
      launch(weigh_bins<T>, by_part, call);
      launch(find_thresholds<T>, {.blocks = logits.rows(), .threads = kRowThreads}, call);
    }
    with_index_type(args.ids.dtype, [&](auto index) {
      launch(draw_tokens<T, decltype(index)>, by_part, call, Rows(args.ids));
    });
  });
}

}  // namespace tessera::cuda
