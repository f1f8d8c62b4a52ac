// The kernels of sample() and sample_rows() on a GPU (sample_kernels.cu), and the scratch memory
// they share.
#pragma once

#include <cstdint>

#include "tessera/sample.h"
#include "tessera/sample_rows.h"

namespace tessera::cuda {

inline constexpr int kSamplePart = 2048;    // elements of a row that one block reads
inline constexpr int kSampleBins = 2048;    // of differences from the largest logit
inline constexpr int kSampleListed = 8192;  // keys of a row that are listed at most

inline std::int64_t sample_parts_of(std::int64_t width) {
  return (width + kSamplePart - 1) / kSamplePart;
}

// For all draws; the part of draw d starts at d times the number in brackets.
struct SampleScratch {
  unsigned long long* largest;      // [parts] the largest key of each part
  unsigned long long* weights;      // [parts] the weight that is kept of each part
  unsigned long long* bin_weights;  // [kSampleBins]
  std::uint32_t* bin_counts;        // [kSampleBins]
  std::int32_t* listed_bins;        // [2] first and last bin whose keys are listed; none: 1, 0
  unsigned long long* listed;       // [kSampleListed] these keys
  std::int32_t* n_listed;           // [1]
  unsigned long long* threshold;    // [1] the last key that is kept
  std::int32_t* arrived;            // [1] blocks that have written their weight
};

void launch_sample(Context& ctx, const SampleArgs& args, const SampleScratch& scratch);
void launch_sample_rows(Context& ctx, const SampleRowsArgs& args, const SampleScratch& scratch);

}  // namespace tessera::cuda
