// cuda.split for keys that are rotated as they are read (rope_on_read): the same splits, rings and
// merges, with keys rotated in registers (rotated_keys.cuh). Nothing else comes between scores and
// softmax.
//
// A step of a warp is
//
//   start copies of a later step | rotations of queries | wait | rotate and multiply | softmax, P V
//
// The rotations of queries are computed while the step's keys are in flight.
#pragma once

#include "cuda/attention/portable/rotated_keys.cuh"
#include "cuda/attention/portable/split.cuh"
#include "cuda/attention/portable/split_rotated.h"
#include "cuda/runtime/dynamic_shared.cuh"
#include "cuda/runtime/launch.h"
#include "cuda/tile/grid_dependency.cuh"

namespace tessera::cuda::split {

// Blocks that share a multiprocessor, as its registers allow.
template <int dim>
constexpr int rotated_sharing() {
  return dim <= 80 ? 4 : 3;
}

// A block's shared memory. At head dim 128 three blocks have 2 KB left beside their rings, so there
// is room only for the query rows that a call has, and the warps' results reuse the place of the
// rotations.
template <int dim>
struct alignas(16) RotatedShared {
  RotationTables<dim> tables;
  PageList pages;

  // After this struct: the warps' rings, then the queries. After the last key: the results.
  __device__ Stage<dim>* ring(int stages) {
    return reinterpret_cast<Stage<dim>*>(this + 1) + warp_of_block() * stages;
  }
  __device__ unsigned char* queries(int stages) {
    return reinterpret_cast<unsigned char*>(reinterpret_cast<Stage<dim>*>(this + 1) +
                                            kWarps * stages);
  }
};

// The interface that share() and finish() expect.
template <int dim>
struct RotatedResults {
  static_assert(sizeof(RotationTables<dim>) >= 2 * sizeof(float[kWarps][kRows]));
  float (*largest)[kRows];
  float (*sum)[kRows];
  float* sums;

  __device__ explicit RotatedResults(RotatedShared<dim>& shared)
      : largest(reinterpret_cast<float (*)[kRows]>(&shared.tables)),
        sum(largest + kWarps),
        sums(reinterpret_cast<float*>(&shared + 1)) {}
  __device__ float* out(int warp, int row) const { return sums + (warp * kRows + row) * dim; }
};

template <int dim>
constexpr int rotated_shared_bytes(int stages, int rows) {
  const int rings = kWarps * stages * static_cast<int>(sizeof(Stage<dim>));
  const int results = kWarps * kRows * dim * 4;
  return static_cast<int>(sizeof(RotatedShared<dim>)) +
         std::max(rings + rows * PaddedRows<dim>::kRowBytes, results);
}

// One warp's steps.
template <typename T, int dim, bool common>
struct RotatedTileLoop {
  const Part& part;
  const KeyTileLoop& loop;
  const Loader<T, dim, true, false>& load;
  RotatedShared<dim>& shared;
  int stages;

  __device__ void run(WarpRows<1, dim>& state) {
    const AttentionCall& call = part.rows.call;
    LaneRotations rotations;
    const RotatedProduct<T, dim, common> product{call, shared.queries(stages), part.rows.size,
                                                 shared.tables};
    WarpSteps<true> loading{part, loop, part.begin + warp_of_block()}, computing = loading;
    Stage<dim>* const ring = shared.ring(stages);
    int into = 0, from = 0;
    std::uint32_t lost = 0;  // bit i: a key of the lane, i steps before the last started
    for (int started = 1;; ++started) {  // steps whose copies have been started, each a group
      const int ahead = loading.take();
      const bool lost_now = ahead >= 0 && load.step(ahead, ring[into]);
      lost = lost << 1 | (lost_now ? 1u : 0u);
      if (started == 1) copy_rows();
      close_copy_group();
      into = next(into);
      if (started < stages) continue;
      if (started == stages) {  // keys are in flight: there is time
        rotations.load(call);
        rotations.template make_keys<T>(shared.tables);
      }
      const int k0 = computing.take();
      if (k0 >= 0) rotations.make_middle(k0, shared.tables);
      wait_for_all_but(stages - 1);
      if (started == stages) __syncthreads();  // the queries and the rotations of keys are ready
      if (k0 < 0) break;
      __syncwarp();
      Stage<dim>& stage = ring[from];
      const bool is_lost = (lost >> (stages - 1) & 1u) != 0;
      if (__ballot_sync(0xffffffffu, is_lost) != 0) {
        if (is_lost) lose_row<dim>(stage.k, lane_of_warp() % kStepKeys);
        __syncwarp();
      }
      Scores<1, kStepKeys> scores;
      product.multiply(stage.k, scores);
      if (!loop.full(k0, kStepKeys)) hide_rotated<common>(part.rows, loop, k0, scores);
      if constexpr (common) {
        update_side0(call.q_factor, scores, state);
      } else {
        update(call.q_factor, scores, state);
      }
      multiply_rotated_values<T, common>(scores, stage.v, state);
      __syncwarp();  // no lane still reads the stage or the rotations
      from = next(from);
    }
    wait_for_copies<0>();
  }

 private:
  __device__ int next(int stage) const { return stage + 1 == stages ? 0 : stage + 1; }

  // Starts the copies of the queries. All threads call it.
  __device__ void copy_rows() const {
    constexpr int kChunks = PaddedRows<dim>::kChunks;
    const QueryRows& rows = part.rows;
    const AttentionCall& call = rows.call;
    unsigned char* const to = shared.queries(stages);
    for (int i = static_cast<int>(threadIdx.x); i < rows.size * kChunks; i += kThreads) {
      const int row = i / kChunks, chunk = i % kChunks;
      const bool there = 8 * chunk < call.dim;
      const T* const from =
          call.query_row<const T>(call.q, rows.sequence, rows.query(row), rows.head(row));
      copy_async(to + PaddedRows<dim>::at(row, chunk), from + (there ? 8 * chunk : 0), there);
    }
  }
};

template <typename T, int dim, bool common>
__global__ void __launch_bounds__(kThreads, (rotated_sharing<dim>()))
    attend_rotated(const __grid_constant__ AttentionCall call,
                   const __grid_constant__ KeyUnits units,
                   const __grid_constant__ Partials partials, int stages) {
  auto& shared = *dynamic_shared<RotatedShared<dim>>();
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const Assignment own(call, partials, false);
  if (own.is_empty()) return;
  const Part part = own.part(call);
  const QueryRows& rows = part.rows;
  if (call.page_table != nullptr) {
    list_pages(part, units, shared.pages);
    __syncthreads();
  }
  const NewTokens none;
  const NewRows<T> fresh{none, rows, nullptr};
  const Loader<T, dim, true, false> load{rows,
                                         units,
                                         first_row<T, true>(call, call.k, rows.kv_head),
                                         first_row<T, true>(call, call.v, rows.kv_head),
                                         shared.pages,
                                         fresh,
                                         {lane_of_warp(), call.dim}};
  WarpRows<1, dim> state;
  state.clear();
  RotatedTileLoop<T, dim, common>{part, own.loop, load, shared, stages}.run(state);
  __syncthreads();  // the rings and the rotations are free
  RotatedResults<dim> results(shared);
  share(state, rows.size, results, [&](int side, float* out) {
    const int column = 2 * (lane_of_warp() % 4);
#pragma unroll
    for (int n = 0; n < dim / 8; ++n) {
      *reinterpret_cast<float2*>(out + 8 * n + column) =
          make_float2(state.out[0][n][2 * side], state.out[0][n][2 * side + 1]);
    }
  });
  __syncthreads();
  finish<T, dim>(own, part, results, partials);
}

// Stages of a ring, as stages_of_call() counts them.
template <int dim>
int rotated_stages(const DeviceLimits& gpu, const AttentionCall& call, const Partials& partials) {
  constexpr int kMost = 4, kReserved = 1024;  // the system's part of a block
  const std::int64_t blocks = slots_of_call(call, partials) * partials.splits;
  const int sharing = blocks > 2 * gpu.multiprocessors ? rotated_sharing<dim>() : 2;
  const int steps = static_cast<int>((call.n_k + kStepKeys - 1) / kStepKeys) + 1;
  const int of_warp = steps_of_split(steps, partials.rule) / kWarps;
  const auto fits = [&](int stages, std::int64_t bytes) {
    return rotated_shared_bytes<dim>(stages, partials.rows) <= bytes;
  };
  int stages = 1;
  while (
      stages < std::min(kMost, of_warp) &&
      fits(stages + 1, stages == 1 ? gpu.shared_bytes : gpu.shared_bytes / sharing - kReserved)) {
    ++stages;
  }
  return stages;
}

template <typename T, int dim>
void launch_rotated(Context& ctx, const AttentionCall& call, const TensorCoreOptions& options,
                    const Partials& partials) {
  if (call.sequences * call.kv_heads == 0 || call.n_q == 0) return;
  const DeviceLimits& gpu = state_of(ctx).limits();
  const int stages = rotated_stages<dim>(gpu, call, partials);
  const Grid grid =
      grid_of_call(gpu, call, partials, rotated_shared_bytes<dim>(stages, partials.rows));
  const Launch start(ctx, "attention");
  if (call.half_split && call.dim == dim && 2 * call.pairs == dim && partials.rows <= 8) {
    start(attend_rotated<T, dim, true>, grid, call, options.units, partials, stages);
  } else {
    start(attend_rotated<T, dim, false>, grid, call, options.units, partials, stages);
  }
  if (partials.splits == 1 || partials.counters != nullptr) return;
  start(merge<T, dim>,
        {.blocks = (slots_of_call(call, partials) * partials.rows + kWarps - 1) / kWarps,
         .threads = kThreads,
         .overlaps = gpu.capability >= 90},
        call, partials);
}

}  // namespace tessera::cuda::split
