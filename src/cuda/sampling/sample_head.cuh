// Where the head of a row's order ends: the last token that top-k or top-p keeps. One block for
// each draw finds the bin in which the head ends; then, while the bin has more keys than are sorted
// at once, the next eight bits of the key; then the key itself. Keys come from the list if they fit
// into it, else from the row.
#pragma once

#include <cstdint>

#include "cuda/sampling/sample_call.cuh"

namespace tessera::cuda {

inline constexpr int kHeadThreads = 1024, kHeadWarps = kHeadThreads / kWarp;
inline constexpr int kHeadCandidates = 4096;  // sorted at once, in 32 KiB of shared memory

// The shared memory of a block that looks for the end of the head.
struct HeadRoom {
  Key keys[kHeadCandidates];
  SharedWeights<256> digit_weights;
  std::uint32_t digit_counts[256];
  std::uint32_t found;
  // Written by the thread that found the end, for the others.
  int place;
  Key key, rest, weight;
  std::uint32_t count;
};

// The shortest head of a row's order that holds the wanted number of tokens, or weight.
struct SampleHead {
  Key last;    // key
  Key weight;  // of all of it
};

template <typename T>
class HeadSearch {
 public:
  __device__ HeadSearch(const SampleCall& call, std::int64_t d, const DrawSetup& setup,
                        LargestLogit largest, HeadRoom& room)
      : call_(call), d_(d), row_(setup.row), scale_(setup.scale), largest_(largest), room_(room) {}

  __device__ Key total() const {
    return block_scan<kHeadWarps>(bin_weight(0) + bin_weight(1)).total;
  }

  // `wanted` is at least 1, and at most what the row has.
  template <bool kByWeight>
  __device__ SampleHead find(Key wanted) {
    find_bin<kByWeight>(wanted);
    Key mask = 0, prefix = 0;
    for (int shift = 56; room_.count > kHeadCandidates; shift -= 8) {
      find_digit<kByWeight>(shift, mask, prefix);
      mask |= Key{0xff} << shift;
      prefix |= static_cast<Key>(room_.place) << shift;
    }
    return find_key<kByWeight>(mask, prefix);
  }

 private:
  static constexpr int kBinsPerThread = kSampleBins / kHeadThreads;
  static_assert(kBinsPerThread == 2);

  __device__ std::int64_t bin_at(int i) const {
    return d_ * kSampleBins + kBinsPerThread * threadIdx.x + i;
  }
  __device__ Key bin_weight(int i) const { return call_.scratch.bin_weights[bin_at(i)]; }
  __device__ Key bin_count(int i) const { return call_.scratch.bin_counts[bin_at(i)]; }
  // Calls fn(key) for the thread's share of the bin's keys that begin with the prefix.
  template <typename F>
  __device__ void for_each(Key mask, Key prefix, F&& fn) const {
    const std::int32_t* const bins = call_.scratch.listed_bins + 2 * d_;
    if (bins[0] <= bin_ && bin_ <= bins[1]) {
      for (int i = static_cast<int>(threadIdx.x); i < call_.scratch.n_listed[d_];
           i += kHeadThreads) {
        const Key key = call_.scratch.listed[d_ * kSampleListed + i];
        if ((key & mask) == prefix && largest_.bin(value_of(key)) == bin_) fn(key);
      }
      return;
    }
    const ElementKeys<T> all{call_.logits.row<const T>(row_), 0, call_.logits.cols()};
    all.for_each_value([&](float logit, std::int64_t index) {
      if (largest_.bin(logit) != bin_) return;
      const Key key = key_of(logit, index);
      if ((key & mask) == prefix) fn(key);
    });
  }
  __device__ Key weight_of(Key key) const { return largest_.weight(value_of(key), scale_); }

  // Sets in the room: the bin and its count, what is wanted of it, and the weight of all bins
  // before it.
  template <bool kByWeight>
  __device__ void find_bin(Key wanted) {
    const auto weights = block_scan<kHeadWarps>(bin_weight(0) + bin_weight(1));
    const auto counts = block_scan<kHeadWarps>(bin_count(0) + bin_count(1));
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
    __syncthreads();  // all threads have read the room
    for (int i = static_cast<int>(threadIdx.x); i < 256; i += kHeadThreads) {
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

  // The remaining keys fit: they are sorted, and each thread adds up some of them.
  template <bool kByWeight>
  __device__ SampleHead find_key(Key mask, Key prefix) {
    if (threadIdx.x == 0) room_.found = 0;
    __syncthreads();
    for_each(mask, prefix, [&](Key key) { room_.keys[atomicAdd(&room_.found, 1u)] = key; });
    int size = 1;
    while (size < static_cast<int>(room_.count)) size *= 2;
    for (int i = static_cast<int>(room_.count + threadIdx.x); i < size; i += kHeadThreads) {
      room_.keys[i] = 0;
    }
    sort_falling(room_.keys, size);

    constexpr int kEach = kHeadCandidates / kHeadThreads;
    const int begin = kEach * static_cast<int>(threadIdx.x);
    const int end = min(begin + kEach, static_cast<int>(room_.count));
    Key own = 0;
    for (int i = begin; i < end; ++i) own += weight_of(room_.keys[i]);
    const Key rest = room_.rest;
    Key weight = block_scan<kHeadWarps>(own).before, before = kByWeight ? weight : begin;
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
    const SampleHead head{room_.key, room_.weight};
    __syncthreads();  // the room is free
    return head;
  }

  const SampleCall& call_;
  std::int64_t d_, row_;
  float scale_;
  LargestLogit largest_;
  HeadRoom& room_;
  int bin_ = 0;
};

}  // namespace tessera::cuda
