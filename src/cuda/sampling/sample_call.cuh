// What the kernels of sample() and sample_rows() have in common: the call, a draw's own options,
// the largest logit, which all weights are relative to, and sums of weights in shared memory.
#pragma once

#include <cstdint>

#include "core/rows.h"
#include "core/sample_weight.h"
#include "cuda/sampling/sample_kernels.h"
#include "cuda/sampling/sort_keys.cuh"
#include "cuda/tile/block_reduce.cuh"
#include "tessera/sample_rows.h"

namespace tessera::cuda {

// A draw as kernels take it.
struct DrawSetup {
  std::int64_t row;     // of the logits; -1: no token can be drawn
  float scale;          // of differences: weight_scale()
  bool greedy;          // the most likely token; nothing below matters
  bool head;            // not all are kept
  std::uint64_t top_k;  // 0: all
  double top_p;
  std::uint64_t least;  // weight, by min_p
  std::uint64_t seed, draw;
};

TESSERA_HOST_DEVICE inline DrawSetup setup_of(const DrawOptions& options, std::int64_t row,
                                              std::int64_t logits) {
  const DrawOptions& o = options;
  const bool fine = accepts_draw(o.temperature, o.top_k, o.top_p, o.min_p);
  const bool greedy = fine && o.temperature == 0;
  const bool top_k = o.top_k > 0 && o.top_k < logits;
  return {.row = fine ? row : -1,
          .scale = weight_scale(!fine || greedy ? 1.0 : o.temperature),
          .greedy = greedy,
          .head = fine && !greedy && (top_k || o.top_p < 1),
          .top_k = top_k ? static_cast<std::uint64_t>(o.top_k) : 0,
          .top_p = o.top_p,
          .least = least_weight(fine ? o.min_p : 0.0),
          .seed = o.seed,
          .draw = o.draw};
}

struct SampleCall {
  Rows logits;
  std::int64_t draws, parts;
  SampleScratch scratch;
  DrawSetup common;          // of sample(): draw d is from row d, by the random number draw + d
  const std::int32_t* rows;  // of sample_rows(); of sample(): null
  Rows options;              // of sample_rows(): a DrawOptions in each row

  SampleCall(const SampleArgs& args, const SampleScratch& from)
      : logits(args.logits),
        draws(logits.rows()),
        parts(sample_parts_of(logits.cols())),
        scratch(from),
        common(setup_of({.temperature = args.temperature,
                         .top_p = args.top_p,
                         .min_p = args.min_p,
                         .top_k = args.top_k,
                         .seed = args.seed,
                         .draw = args.draw},
                        0, logits.cols())),
        rows(nullptr),
        options(Tensor()) {}
  SampleCall(const SampleRowsArgs& args, const SampleScratch& from)
      : logits(args.logits),
        draws(args.ids.numel()),
        parts(sample_parts_of(logits.cols())),
        scratch(from),
        common{},
        rows(args.rows.ptr<const std::int32_t>()),
        options(args.options) {}

  // -1: there is no such row.
  __device__ std::int64_t row_of(std::int64_t d) const {
    if (rows == nullptr) return d;
    const std::int64_t row = rows[d];
    return row >= 0 && row < logits.rows() ? row : -1;
  }
  __device__ DrawSetup setup(std::int64_t d) const {
    if (rows != nullptr) {
      return setup_of(*options.row<const DrawOptions>(d), row_of(d), logits.cols());
    }
    DrawSetup setup = common;
    setup.row = d;
    setup.draw += static_cast<std::uint64_t>(d);
    return setup;
  }

  template <typename T>
  __device__ ElementKeys<T> part_keys(std::int64_t row, std::int64_t part) const {
    const std::int64_t begin = part * kSamplePart, end = begin + kSamplePart;
    return {logits.row<const T>(row), begin, end < logits.cols() ? end : logits.cols()};
  }
};

// The logit that all weights of a row are relative to.
struct LargestLogit {
  Key key;  // 0: there is no row

  // Whether it is NaN or infinite: no token can then be drawn.
  __device__ bool is_bad() const {
    return value_bits(key) >= kInfinityBits || value_bits(key) <= kLeastBits;
  }
  __device__ std::uint64_t weight(float logit, float scale) const {
    return sample_weight(logit, value_of(key), scale);
  }
  // Falling logits, rising bins.
  __device__ int bin(float logit) const {
    constexpr float kBinsPerUnit = 64.f;
    const float place = (value_of(key) - logit) * kBinsPerUnit;
    return place < kSampleBins - 1 ? static_cast<int>(place) : kSampleBins - 1;
  }
};

// The most likely token, or -1.
template <typename Index>
__device__ Index token_of(LargestLogit largest) {
  return largest.is_bad() ? Index{-1} : static_cast<Index>(index_of(largest.key));
}

template <int kWarps>
__device__ LargestLogit largest_of_draw(const SampleCall& call, std::int64_t d) {
  Key largest = 0;
  for (std::int64_t p = threadIdx.x; p < call.parts; p += blockDim.x) {
    const Key key = call.scratch.largest[d * call.parts + p];
    if (key > largest) largest = key;
  }
  return {block_reduce<kWarps>(largest, Max())};
}

// Weights added up in shared memory, which has atomic additions of only 32 bits: most weights have
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

}  // namespace tessera::cuda
