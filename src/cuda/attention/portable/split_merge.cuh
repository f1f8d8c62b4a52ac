// Softmaxes over parts of a row's keys become one over all of them (split.cuh).
#pragma once

#include "cuda/attention/call.h"
#include "cuda/attention/portable/fragments.cuh"
#include "cuda/attention/portable/tensor_core.h"

namespace tessera::cuda::split {

// The merged softmax of several parts of the keys.
struct Merged {
  float largest = -INFINITY, sum = 0.f;

  // What a part's sums are multiplied by.
  __device__ float weight(float part_largest) const {
    return part_largest == -INFINITY ? 0.f : fast_exp2(part_largest - largest);
  }
};

__device__ inline float log_sum_exp(const Merged& merged) {
  constexpr float kLn2 = 0.6931471805599453f;
  return merged.sum == 0.f ? -INFINITY : (merged.largest + log2f(merged.sum)) * kLn2;
}

// One warp merges the parts of one row, some parts at a time: all their loads are on their way at
// once, and earlier sums are rescaled to the same largest.
template <typename T, int dim>
__device__ void merge_row(const QueryRows& rows, int row, std::uint32_t slot,
                          const Partials& partials, int splits) {
  constexpr int kElements = (dim + 31) / 32;      // of a lane: every 32nd
  constexpr int kParts = kElements <= 4 ? 8 : 4;  // at a time
  const AttentionCall& call = rows.call;
  const int lane = lane_of_warp();
  const auto most_rows = static_cast<std::uint32_t>(partials.rows);
  const std::int64_t first = std::int64_t{slot} * partials.splits * most_rows + row;
  const auto* stats = reinterpret_cast<const float2*>(partials.largest_and_sum) + first;
  const float* sums = partials.sums + first * call.dim + lane;
  Merged merged;
  float out[kElements] = {};
  for (int begin = 0; begin < splits; begin += kParts) {
    float2 part[kParts];
    float values[kParts][kElements];
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const bool there = begin + i < splits;
      const std::uint32_t at = static_cast<std::uint32_t>(begin + i) * most_rows;
      part[i] = there ? stats[at] : make_float2(-INFINITY, 0.f);
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        const bool exists = there && lane + 32 * e < call.dim;
        values[i][e] = exists ? sums[std::int64_t{at} * call.dim + 32 * e] : 0.f;
      }
    }
    const float before = merged.largest;
#pragma unroll
    for (int i = 0; i < kParts; ++i) merged.largest = fmaxf(merged.largest, part[i].x);
    const float kept = merged.weight(before);
    merged.sum *= kept;
#pragma unroll
    for (float& element : out) element *= kept;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const float weight = merged.weight(part[i].x);
      merged.sum += weight * part[i].y;
#pragma unroll
      for (int e = 0; e < kElements; ++e) out[e] += weight * values[i][e];
    }
  }
  const float factor = merged.sum == 0.f ? 0.f : 1.f / merged.sum;
  T* to = call.query_row<T>(call.out, rows.sequence, rows.query(row), rows.head(row)) + lane;
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    if (lane + 32 * e < call.dim) to[32 * e] = from_f32<T>(factor * out[e]);
  }
  if (lane == 0 && call.lse != nullptr) {
    *call.lse_at(rows.sequence, rows.query(row), rows.head(row)) = log_sum_exp(merged);
  }
}

}  // namespace tessera::cuda::split
