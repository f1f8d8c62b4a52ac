// Attention, forward, where a sequence has few query rows: cuda.split, for decoding against a long
// cache.
//
// The idea: there is little to compute and much to read, so the keys of a sequence are split among
// blocks, and among the four warps of a block. Each warp streams its keys and values through its
// own ring in shared memory and waits for nobody:
//
//   keys, in steps of 16   |  0  1  2  3   4  5  6  7 |  8  9 10 11  12 13 14 15 |
//   block                  |            0             |             1            |
//   warp of it             |  0  1  2  3   0  1  2  3 |  0  1  2  3   0  1  2  3 |
//
// All query heads that share a key head are rows of the same mma.sync, which has 16 rows. The
// results of a block's warps are merged in shared memory: softmaxes over parts of the keys combine
// by their (largest, sum, out). If the block had all keys, that is the output. Otherwise it goes to
// the workspace, and the parts of each row are merged (split_merge.cuh): by the block that finishes
// last, or by a second kernel where there are many rows.
//
// examples/learn has no step for it. Step 3 teaches the running softmax, whose rescaling is the
// merge; docs/design/attention_kernels.md has the algebra.
#pragma once

#include "cuda/attention/call.h"
#include "cuda/attention/portable/coded_rows.cuh"
#include "cuda/attention/portable/fragments.cuh"
#include "cuda/attention/portable/key_tile_loop.cuh"
#include "cuda/attention/portable/shared_rows.cuh"
#include "cuda/attention/portable/split_merge.cuh"
#include "cuda/attention/portable/tensor_core.h"
#include "cuda/runtime/dynamic_shared.cuh"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/state.h"
#include "cuda/tile/block_reduce.cuh"
#include "cuda/tile/grid_dependency.cuh"
#include "cuda/tile/last_block.cuh"

namespace tessera::cuda::split {

inline constexpr int kThreads = 32 * kWarps, kRows = static_cast<int>(kFewRows);

__device__ inline int warp_of_block() { return static_cast<int>(threadIdx.x) / 32; }

// Steps under way in a warp. At 256 dims, one step of four warps takes 66 KB.
constexpr int stages_of(int dim) { return dim <= 128 ? 2 : 1; }

template <int dim>
struct Stage {
  unsigned char k[kStepKeys * PaddedRows<dim>::kRowBytes];
  unsigned char v[kStepKeys * PaddedRows<dim>::kRowBytes];
};

template <int dim>
struct Shared {
  unsigned char q[kRows * PaddedRows<dim>::kRowBytes];
  union {
    Stage<dim> stages[kWarps][stages_of(dim)];
    float out[kWarps][kRows][dim];  // when all keys have been seen
  };
  float largest[kWarps][kRows], sum[kWarps][kRows];
  KeyTileLoop loop;
};

// The steps of a sequence: those of the sinks, if any, then those of the band.
struct Steps {
  int sink_steps, begin, count;

  __device__ explicit Steps(const KeyTileLoop& loop) {
    sink_steps = (loop.sinks + kStepKeys - 1) / kStepKeys;
    begin = std::max(loop.begin / kStepKeys, sink_steps);
    count = sink_steps + std::max(0, (loop.end + kStepKeys - 1) / kStepKeys - begin);
  }
  // The first key of step i.
  __device__ int key(int i) const {
    return kStepKeys * (i < sink_steps ? i : begin + i - sink_steps);
  }
};

// A block's part of the work.
struct Part {
  QueryRows rows;
  Steps steps;
  int begin, end;  // of the steps
};

// What a lane knows of its key in a step. Two lanes have each key.
struct LaneKey {
  bool lost = false;
  KeyFactors factors{};  // of codes
};

// Starts the copies of steps. Lean: is_lean(), and rows are copied in vectors.
template <typename T, int dim, bool lean>
struct Loader {
  const QueryRows& rows;
  const KeyUnits& units;
  const void *k, *v;  // the head's first row
  RowCopy<dim, kStepKeys, 32> copies;

  __device__ bool in_vectors() const { return lean || units.vectors; }
  __device__ bool has_codes() const { return !lean && rows.call.has_codes(); }
  __device__ CodedRows<T, dim, kStepKeys, 32> coded() const {
    return {lane_of_warp(), rows.call.dim, rows.call.stored, units.vectors};
  }
  __device__ void queries(unsigned char* to) const {
    const AttentionCall& call = rows.call;
    load_queries<dim, kRows, kThreads, T>(to, call.dim, in_vectors(), [&](int r) {
      return r < rows.size
                 ? call.query_row<const T>(call.q, rows.sequence, rows.query(r), rows.head(r))
                 : nullptr;
    });
  }
  __device__ LaneKey step(int k0, Stage<dim>& stage) const {
    const int key = k0 + lane_of_warp() % kStepKeys;
    const KeyRow mine = find_key_row(rows.call, units, rows.sequence, key);
    const auto k_row = [&](int r) { return __shfl_sync(0xffffffffu, mine.k, r); };
    const auto v_row = [&](int r) { return __shfl_sync(0xffffffffu, mine.v, r); };
    const bool lost = mine.k == kLostRow;
    if (has_codes()) {
      coded().copy(stage.k, k, k_row);
      coded().copy(stage.v, v, v_row);
      return {lost, find_key_factors(rows.call, units, rows.sequence, rows.kv_head, key)};
    }
    copies.copy(stage.k, static_cast<const T*>(k), in_vectors(), k_row);
    copies.copy(stage.v, static_cast<const T*>(v), in_vectors(), v_row);
    return {lost};
  }
  // When all lanes' copies have landed.
  __device__ void expand(Stage<dim>& stage) const {
    if (!has_codes()) return;
    coded().expand(stage.k, [] { __syncwarp(); });
    coded().expand(stage.v, [] { __syncwarp(); });
  }
};

// The steps of one warp: every fourth of the block's steps that some row sees.
struct WarpSteps {
  const Part& part;
  const KeyTileLoop& loop;
  int next;

  // The first key of the next step, or -1.
  __device__ int take() {
    for (; next < part.end; next += kWarps) {
      const int k0 = part.steps.key(next);
      if (!loop.visits(k0, kStepKeys)) continue;
      next += kWarps;
      return k0;
    }
    return -1;
  }
};

template <typename T, int dim, bool lean>
__device__ void attend_steps(const Part& part, const KeyTileLoop& loop,
                             const Loader<T, dim, lean>& load, Shared<dim>& shared,
                             WarpRows<1, dim>& state) {
  constexpr int kStages = stages_of(dim);
  const AttentionCall& call = part.rows.call;
  const ScoreScale scale{call};
  const int warp = warp_of_block();
  WarpSteps steps{part, loop, part.begin + warp};
  int k_last = -1;  // the step whose copies were started before this step's
  LaneKey key_last;
  for (int turn = 0;; ++turn) {
    const int k_now = steps.take();
    LaneKey key_now;
    if (k_now >= 0) key_now = load.step(k_now, shared.stages[warp][turn % kStages]);
    if (turn == 0) load.queries(shared.q);  // the first keys take longest to come
    close_copy_group();
    const int k0 = kStages == 1 ? k_now : k_last;
    const LaneKey key = kStages == 1 ? key_now : key_last;
    k_last = k_now;
    key_last = key_now;
    if (turn < kStages - 1) continue;
    wait_for_copies<kStages - 1>();
    if (turn == kStages - 1) __syncthreads();  // the queries are there
    if (k0 < 0) break;
    __syncwarp();
    Stage<dim>& stage = shared.stages[warp][(turn + 1) % kStages];
    load.expand(stage);
    if (__ballot_sync(0xffffffffu, key.lost) != 0) {
      if (key.lost) lose_row<dim>(stage.k, lane_of_warp() % kStepKeys);
      __syncwarp();
    }
    if (!lean && call.inv_freq != nullptr) {
      turn_keys<dim, kStepKeys, T>(call, stage.k, k0, lane_of_warp(), 32);
      __syncwarp();
    }
    Scores<1, kStepKeys> scores;
    multiply_keys<T, dim>(shared.q, stage.k, scores);
    if (load.has_codes()) {
      scale_columns(scores, [&](int c) { return __shfl_sync(0xffffffffu, key.factors.k, c); });
    }
    if (!lean) scale.bend(scores);
    if (!loop.full(k0, kStepKeys)) hide(part.rows, 0, loop, k0, scores);
    update(scale.positive_factor(), scores, state);
    if (!lean && call.dropping) drop(part.rows, 0, k0, scores);
    if (load.has_codes()) {
      scale_columns(scores, [&](int c) { return __shfl_sync(0xffffffffu, key.factors.v, c); });
    }
    multiply_values<T, dim>(scores, stage.v, state);
    __syncwarp();  // nobody reads the stage any more
  }
  wait_for_copies<0>();
}

// The warps' results go to shared memory.
template <int dim>
__device__ void share(const WarpRows<1, dim>& state, Shared<dim>& shared) {
  const int warp = warp_of_block(), lane = lane_of_warp();
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const int row = state.row(0, side);
#pragma unroll
    for (int n = 0; n < dim / 8; ++n) {
      *reinterpret_cast<float2*>(&shared.out[warp][row][8 * n + 2 * (lane % 4)]) =
          make_float2(state.out[0][n][2 * side], state.out[0][n][2 * side + 1]);
    }
    const float sum = tile::quad_sum(state.sum[0][side]);
    if (lane % 4 == 0) {
      shared.largest[warp][row] = state.largest[0][side];
      shared.sum[warp][row] = sum;
    }
  }
}

// Merges the warps' results: a warp takes every fourth row, and a lane every 32nd element of a row.
template <typename T, int dim>
__device__ void merge_warps(const Part& part, const Shared<dim>& shared, const Partials& partials,
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
      for (int w = 0; w < kWarps; ++w) sum += weights[w] * shared.out[w][r][d];
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

// A key head of a sequence. In 32 bits, because a division then takes a quarter of the time.
struct Slot {
  int sequence, kv_head;

  __device__ Slot(const AttentionCall& call, std::uint32_t slot) {
    const auto kv_heads = static_cast<std::uint32_t>(call.kv_heads);
    sequence = static_cast<int>(slot / kv_heads);
    kv_head = static_cast<int>(slot % kv_heads);
  }
};

// Block slot * splits + split.
template <typename T, int dim, bool lean>
__global__ void __launch_bounds__(kThreads, 2)
    attend(AttentionCall call, KeyUnits units, Partials partials) {
  auto& shared = *dynamic_shared<Shared<dim>>();
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const std::uint32_t slot = blockIdx.x / static_cast<std::uint32_t>(partials.splits);
  const int split =
      static_cast<int>(blockIdx.x - slot * static_cast<std::uint32_t>(partials.splits));
  const Slot place(call, slot);
  const SmallSequence s = SmallSequence::of(call, place.sequence);
  const int size = s.n_q * static_cast<int>(call.group);
  if (size == 0 || size > kRows) return;  // nothing to do, or left to the kernel for many rows
  const QueryRows rows{call, s, place.kv_head, 0, size};
  KeyTileLoop& loop = shared.loop;  // not in registers: functions that are not inlined read it
  KeyTileLoop own;
  own.start(call.mask, s, 0, s.n_q - 1, false);
  const Steps steps(own);
  const int each = steps_of_split(steps.count, partials.limit);
  const int begin = split * each;
  if (begin >= steps.count && split > 0) return;
  if (threadIdx.x == 0) loop = own;
  __syncthreads();
  const Part part{rows, steps, begin, std::min(steps.count, begin + each)};

  const bool codes = !lean && call.has_codes();
  const auto first_row = [&](const HeadRows& of) -> const void* {
    if (codes) return of.at<const std::uint8_t>(0, 0, rows.kv_head);
    return of.at<const T>(0, 0, rows.kv_head);
  };
  const Loader<T, dim, lean> load{
      rows, units, first_row(call.k), first_row(call.v), {lane_of_warp(), call.dim}};
  WarpRows<1, dim> state;
  state.clear();
  attend_steps<T, dim, lean>(part, loop, load, shared, state);
  __syncthreads();  // the stages are free
  share(state, shared);
  __syncthreads();
  const bool alone = steps.count <= each;
  merge_warps<T, dim>(part, shared, partials, slot, split, alone);
  const int splits = splits_of(steps.count, partials.limit);
  if (alone || partials.counters == nullptr || !comes_last(partials.counters + slot, splits))
    return;
  for (int row = warp_of_block(); row < rows.size; row += kWarps) {
    merge_row<T, dim>(rows, row, slot, partials, splits);
  }
}

// Merges the parts of rows. Warp slot * rows + row has one row.
template <typename T, int dim>
__global__ void __launch_bounds__(kThreads) merge(AttentionCall call, Partials partials) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const auto most_rows = static_cast<std::uint32_t>(partials.rows);
  const std::uint32_t item = blockIdx.x * kWarps + static_cast<std::uint32_t>(warp_of_block());
  const std::uint32_t slot = item / most_rows;
  const int row = static_cast<int>(item - slot * most_rows);
  if (slot >= call.sequences * call.kv_heads) return;
  const Slot place(call, slot);
  const SmallSequence s = SmallSequence::of(call, place.sequence);
  const int size = s.n_q * static_cast<int>(call.group);
  if (row >= size || size > kRows) return;
  const QueryRows rows{call, s, place.kv_head, 0, size};
  KeyTileLoop loop;
  loop.start(call.mask, s, 0, s.n_q - 1, false);
  const int splits = splits_of(Steps(loop).count, partials.limit);
  if (splits == 1) return;  // the block has written the output

  merge_row<T, dim>(rows, row, slot, partials, splits);
}

template <typename T, int dim>
void launch(Context& ctx, const AttentionCall& call, const TensorCoreOptions& options,
            const Partials& partials) {
  const std::int64_t slots = call.sequences * call.kv_heads;
  if (slots == 0 || call.n_q == 0) return;
  const Launch start(ctx, "attention");
  const bool overlaps = state_of(ctx).limits().capability >= 90;
  const Grid grid{.blocks = slots * partials.splits,
                  .threads = kThreads,
                  .shared_bytes = static_cast<int>(sizeof(Shared<dim>)),
                  .overlaps = overlaps};
  if (is_lean(call) && options.units.vectors) {
    start(attend<T, dim, true>, grid, call, options.units, partials);
  } else {
    start(attend<T, dim, false>, grid, call, options.units, partials);
  }
  if (partials.splits == 1 || partials.counters != nullptr) return;
  start(merge<T, dim>,
        {.blocks = (slots * partials.rows + kWarps - 1) / kWarps,
         .threads = kThreads,
         .overlaps = overlaps},
        call, partials);
}

}  // namespace tessera::cuda::split
