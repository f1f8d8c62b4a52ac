// Merges the softmaxes over parts of a row's keys into one over all keys (split.cuh): first the
// warps of a block in shared memory, then the blocks in the workspace.
#pragma once

#include "cuda/attention/call.h"
#include "cuda/attention/portable/fragments.cuh"
#include "cuda/attention/portable/split_block.cuh"
#include "cuda/attention/portable/tensor_core.h"
#include "cuda/tile/last_block.cuh"

namespace tessera::cuda::split {

// The merged softmax of several parts of the keys.
struct Merged {
  float largest = -INFINITY, sum = 0.f;

  // The factor for a part's sums.
  __device__ float weight(float part_largest) const {
    return part_largest == -INFINITY ? 0.f : fast_exp2(part_largest - largest);
  }
};

__device__ inline float log_sum_exp(const Merged& merged) {
  constexpr float kLn2 = 0.6931471805599453f;
  return merged.sum == 0.f ? -INFINITY : (merged.largest + log2f(merged.sum)) * kLn2;
}

// One warp merges the parts of one row, several parts at a time: their loads are in flight
// together, and earlier sums are rescaled to the same largest score.
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

// Stores the warps' results to shared memory. write(side, row) stores the sums of a side.
template <int dim, typename Shared, typename Write>
__device__ void share(const WarpRows<1, dim>& state, int rows, Shared& shared, Write write) {
  const int warp = warp_of_block();
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const int row = state.row(0, side);
    const float sum = tile::quad_sum(state.sum[0][side]);
    if (row >= rows) continue;
    write(side, shared.out(warp, row));
    if (lane_of_warp() % 4 == 0) {
      shared.largest[warp][row] = state.largest[0][side];
      shared.sum[warp][row] = sum;
    }
  }
}

// Merges the warps' results: a warp takes every fourth row, and a lane every 32nd element of a row.
template <typename T, typename Shared>
__device__ void merge_warps(const Part& part, Shared& shared, const Partials& partials,
                            std::int64_t slot, int split, bool alone) {
  const QueryRows& rows = part.rows;
  const AttentionCall& call = rows.call;
  const int lane = lane_of_warp();
  for (int r = warp_of_block(); r < rows.size; r += kWarps) {
    Merged merged;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) merged.largest = fmaxf(merged.largest, shared.largest[w][r]);
    float weights[kWarps];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      weights[w] = merged.weight(shared.largest[w][r]);
      merged.sum += weights[w] * shared.sum[w][r];
    }
    const float factor = !alone ? 1.f : merged.sum == 0.f ? 0.f : 1.f / merged.sum;
    const std::int64_t at = (slot * partials.splits + split) * partials.rows + r;
    T* out = call.query_row<T>(call.out, rows.sequence, rows.query(r), rows.head(r));
    for (int d = lane; d < call.dim; d += 32) {
      float sum = 0.f;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += weights[w] * shared.out(w, r)[d];
      if (alone) {
        out[d] = from_f32<T>(factor * sum);
      } else {
        partials.sums[at * call.dim + d] = sum;
      }
    }
    if (lane != 0) continue;
    if (!alone) {
      partials.largest_and_sum[2 * at] = merged.largest;
      partials.largest_and_sum[2 * at + 1] = merged.sum;
    } else if (call.lse != nullptr) {
      *call.lse_at(rows.sequence, rows.query(r), rows.head(r)) = log_sum_exp(merged);
    }
  }
}

// Finishes a block once the results of all its warps are in shared memory: merges them and, if the
// block is the last of its slot, the parts of all blocks.
template <typename T, int dim, typename Shared>
__device__ void finish(const Assignment& own, const Part& part, Shared& shared,
                       const Partials& partials) {
  const int steps = part.steps.count;
  const bool alone = steps <= own.each;
  const std::uint32_t slot = own.item.slot(part.rows.call, partials.tiles);
  merge_warps<T>(part, shared, partials, slot, own.item.split, alone);
  const int splits = splits_of(steps, partials.rule);
  if (alone || partials.counters == nullptr || !comes_last(partials.counters + slot, splits))
    return;
  for (int row = warp_of_block(); row < part.rows.size; row += kWarps) {
    merge_row<T, dim>(part.rows, row, slot, partials, splits);
  }
}

}  // namespace tessera::cuda::split
