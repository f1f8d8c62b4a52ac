// Attention, forward, where a sequence has few query rows: cuda.split, for decoding against a long
// cache.
//
// The idea: there is little to compute and much to read, so the keys of a sequence are split among
// blocks, and among the four warps of a block. Each warp streams its keys and values through its
// own ring in shared memory and never waits for another warp:
//
//   keys, in steps of 16   |  0  1  2  3   4  5  6  7 |  8  9 10 11  12 13 14 15 |
//   block                  |            0             |             1            |
//   warp of it             |  0  1  2  3   0  1  2  3 |  0  1  2  3   0  1  2  3 |
//
// Memory is fast only if many loads are in flight, so a ring has as many stages as still let two
// blocks share a multiprocessor. Neighbouring blocks have neighbouring heads of the same keys,
// which are adjacent in memory.
//
// All query heads that share a key head are rows of the same mma.sync, which has 16 rows. The
// results of a block's warps are merged in shared memory: softmaxes over parts of the keys combine
// by their (largest, sum, out). If the block had all keys, the merged result is the output.
// Otherwise it goes to the workspace, and the parts of each row are merged (split_merge.cuh) by the
// block that finishes last, or by a second kernel where there are many rows.
//
// examples/learn has no step for it. Step 3 teaches the running softmax, whose rescaling is the
// merge; docs/design/attention_kernels.md has the algebra.
#pragma once

#include "cuda/attention/call.h"
#include "cuda/attention/portable/coded_rows.cuh"
#include "cuda/attention/portable/fragments.cuh"
#include "cuda/attention/portable/key_tile_loop.cuh"
#include "cuda/attention/portable/split_block.cuh"
#include "cuda/attention/portable/split_merge.cuh"
#include "cuda/attention/portable/split_new_tokens.cuh"
#include "cuda/attention/portable/tensor_core.h"
#include "cuda/runtime/dynamic_shared.cuh"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/state.h"
#include "cuda/tile/grid_dependency.cuh"
#include "cuda/tile/last_block.cuh"

namespace tessera::cuda::split {

// Blocks that share a multiprocessor: as many as its registers allow, if there are more blocks than
// it can start at once. A step is little work with many waits, and more warps hide more of the
// waits. Fewer blocks have longer rings instead.
template <int dim, bool lean, bool append>
constexpr int most_sharing() {
  return dim <= 128 && lean && !append ? 3 : 2;
}

// The queries as an operand of mma.sync. Wide heads leave no registers for them; the queries are
// then read again in each step.
template <typename T, int dim>
struct QueryOperand {
  static constexpr bool kKept = dim <= 96;
  std::uint32_t a[kKept ? dim / 16 : 1][4];

  __device__ static void load_one(const unsigned char* q, int k, std::uint32_t (&to)[4]) {
    load_matrices(to, q + PaddedRows<dim>::at(lane_of_warp() % 16, 2 * k + lane_of_warp() / 16));
  }
  __device__ void load(const unsigned char* q) {
    if constexpr (kKept) {
#pragma unroll
      for (int k = 0; k < dim / 16; ++k) load_one(q, k, a[k]);
    }
  }
  // scores = Q K^T
  __device__ void multiply(const unsigned char* q, const unsigned char* keys,
                           Scores<1, kStepKeys>& scores) {
    const int lane = lane_of_warp();
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[0][0][i] = scores[0][1][i] = 0.f;
#pragma unroll
    for (int k = 0; k < dim / 16; ++k) {
      std::uint32_t b[4];
      load_matrices(b, keys + PaddedRows<dim>::at(lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
      if constexpr (!kKept) load_one(q, k, a[0]);
      mma_16x8x16(scores[0][0], a[kKept ? k : 0], {b[0], b[1]}, T());
      mma_16x8x16(scores[0][1], a[kKept ? k : 0], {b[2], b[3]}, T());
    }
  }
};

// One warp's loop over its tiles of keys. Only one place starts copies, because a kernel of a few
// microseconds waits for its instructions to load.
template <typename T, int dim, bool lean, bool append>
struct WarpTileLoop {
  const Part& part;
  const KeyTileLoop& loop;
  const Loader<T, dim, lean, append>& load;
  Shared<dim>& shared;
  int stages;
  bool early;  // the kernel before may still run
  WarpSteps<lean> loading{part, loop, part.begin + warp_of_block()};
  WarpSteps<lean> computing{part, loop, part.begin + warp_of_block()};
  int into = 0, from = 0, started = 0;  // stages of the ring, and steps whose copies were started
  std::uint32_t lost = 0;               // bit i: a key of the lane, i steps before the last started
  KeyFactors factors{};                 // of codes: the lane's key in the next step to compute

  __device__ void run(WarpRows<1, dim>& state) {
    const AttentionCall& call = part.rows.call;
    const ScoreScale scale{call};
    QueryOperand<T, dim> queries;
    while (true) {
      if (append && early && (started == stages - 1 || next_is_fresh())) {
        wait_for_earlier_kernels();
        early = false;
      }
      start();
      if (started < stages) continue;
      if (load.has_codes() && started == stages) factors = next_factors();
      if (append && started == stages) load_rotated_queries<dim>(load.fresh, shared.q);
      wait_for_all_but(stages - 1);
      if (started == stages) {
        __syncthreads();  // the queries have arrived
        queries.load(shared.q);
      }
      const int k0 = computing.take();
      if (k0 < 0) break;
      __syncwarp();
      Stage<dim>& stage = shared.ring(stages)[from];
      const KeyFactors now = factors;
      if (load.has_codes()) factors = next_factors();
      prepare(k0, stage);
      Scores<1, kStepKeys> scores;
      queries.multiply(shared.q, stage.k, scores);
      if (load.has_codes()) {
        scale_columns(scores, [&](int c) { return __shfl_sync(0xffffffffu, now.k, c); });
      }
      if (!lean) scale.bend(scores);
      if (!loop.full(k0, kStepKeys)) hide(part.rows, 0, loop, k0, scores);
      update(scale.positive_factor(), scores, state);
      if (!lean && call.dropping) drop(part.rows, 0, k0, scores);
      if (load.has_codes()) {
        scale_columns(scores, [&](int c) { return __shfl_sync(0xffffffffu, now.v, c); });
      }
      multiply_values<T, dim>(scores, stage.v, state);
      if (append && load.fresh.in_step(k0)) {
        load.fresh.template store<dim>(k0, stage.k, stage.v);
      }
      __syncwarp();  // no lane still reads the stage
      from = next(from);
    }
    wait_for_copies<0>();
  }

 private:
  __device__ int next(int stage) const { return stage + 1 == stages ? 0 : stage + 1; }
  // Starts the copies of the next step, as one group.
  __device__ void start() {
    const int k0 = loading.take();
    const bool lost_now = k0 >= 0 && load.step(k0, shared.ring(stages)[into]);
    lost = lost << 1 | (lost_now ? 1u : 0u);
    if (!append && started == 0) load.queries(shared.q);  // the first keys take longest to arrive
    close_copy_group();
    into = next(into);
    ++started;
  }
  // Whether the next step has keys that the kernel before writes.
  __device__ bool next_is_fresh() const {
    WarpSteps<lean> ahead = loading;
    const int k0 = ahead.take();
    return k0 >= 0 && load.fresh.in_step(k0);
  }
  // Loaded one step ahead, to hide the latency.
  __device__ KeyFactors next_factors() const {
    WarpSteps<lean> ahead = computing;
    const int k0 = ahead.take();
    return k0 >= 0 ? load.factors(k0 + lane_of_warp() % kStepKeys) : KeyFactors{};
  }
  // Finishes the keys in shared memory.
  __device__ void prepare(int k0, Stage<dim>& stage) {
    load.expand(stage);
    const bool is_lost = (lost >> (stages - 1) & 1u) != 0;
    if (__ballot_sync(0xffffffffu, is_lost) != 0) {
      if (is_lost) lose_row<dim>(stage.k, lane_of_warp() % kStepKeys);
      __syncwarp();
    }
    if (append && load.fresh.in_step(k0)) {
      load.fresh.template rotate_keys<dim>(k0, stage.k);
      __syncwarp();
    }
    if (!lean && part.rows.call.inv_freq != nullptr) {
      rotate_keys<dim, kStepKeys, T>(part.rows.call, stage.k, k0, lane_of_warp(), 32);
      __syncwarp();
    }
  }
};

// Block i has item i. Append: the call has new tokens and is lean.
template <typename T, int dim, bool lean, bool append>
__global__ void __launch_bounds__(kThreads, (most_sharing<dim, lean, append>()))
    attend(const __grid_constant__ AttentionCall call, const __grid_constant__ KeyUnits units,
           const __grid_constant__ Partials partials, int stages,
           const __grid_constant__ NewTokens tokens) {
  auto& shared = *dynamic_shared<Shared<dim>>();
  const bool early = append && tokens.settled;
  let_next_kernel_start();
  if (!early) wait_for_earlier_kernels();
  const Assignment own(call, partials, !lean);
  if (own.is_empty()) {
    if (early) wait_for_earlier_kernels();  // or the next kernel might not wait for the last
    return;
  }
  if (!lean && threadIdx.x == 0) shared.loop = own.loop;
  const Part part = own.part(call);
  const QueryRows& rows = part.rows;
  const NewRows<T> fresh{tokens, rows, shared.rotations(stages)};
  if (call.page_table != nullptr) list_pages(part, units, shared.pages);
  if constexpr (append) {
    make_rotations(fresh, shared.rotations(stages));
    clear_queries<dim>(shared.q);
  }
  __syncthreads();

  const Loader<T, dim, lean, append> load{rows,
                                          units,
                                          first_row<T, lean>(call, call.k, rows.kv_head),
                                          first_row<T, lean>(call, call.v, rows.kv_head),
                                          shared.pages,
                                          fresh,
                                          {lane_of_warp(), call.dim}};
  WarpRows<1, dim> state;
  state.clear();
  // In shared memory if functions that are not inlined read it, else in registers.
  const KeyTileLoop& loop = lean ? own.loop : shared.loop;
  WarpTileLoop<T, dim, lean, append>{part, loop, load, shared, stages, early}.run(state);
  __syncthreads();  // the rings are free
  share(state, rows.size, shared, [&](int side, float* out) {
    const int column = 2 * (lane_of_warp() % 4);
#pragma unroll
    for (int n = 0; n < dim / 8; ++n) {
      *reinterpret_cast<float2*>(out + 8 * n + column) =
          make_float2(state.out[0][n][2 * side], state.out[0][n][2 * side + 1]);
    }
  });
  __syncthreads();
  finish<T, dim>(own, part, shared, partials);
}

// Merges the parts of rows. Warp slot * rows + row has one row.
template <typename T, int dim>
__global__ void __launch_bounds__(kThreads) merge(AttentionCall call, Partials partials) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const auto most_rows = static_cast<std::uint32_t>(partials.rows);
  const std::uint32_t number = blockIdx.x * kWarps + static_cast<std::uint32_t>(warp_of_block());
  const std::uint32_t slot = number / most_rows;
  const int row = static_cast<int>(number - slot * most_rows);
  if (slot >= call.sequences * call.kv_heads * partials.tiles.count) return;
  const Item item(call, partials.tiles, 1, slot);
  const SmallSequence s = item.run(call, partials.tiles);
  const int size = s.n_q * static_cast<int>(call.group);
  if (row >= size || size > kRows) return;
  const QueryRows rows{call, s, item.kv_head, 0, size};
  KeyTileLoop loop;
  loop.start(call.mask, s, 0, s.n_q - 1, false);
  const int splits = splits_of(Steps(loop).count, partials.rule);
  if (splits == 1) return;  // the block has written the output

  merge_row<T, dim>(rows, row, slot, partials, splits);
}

template <typename T, int dim>
void launch(Context& ctx, const AttentionCall& call, const TensorCoreOptions& options,
            const Partials& partials, const NewTokens* tokens) {
  const std::int64_t slots = slots_of_call(call, partials);
  if (slots == 0 || call.n_q == 0) return;
  const Launch start(ctx, "attention");
  const DeviceLimits& gpu = state_of(ctx).limits();
  const int stages =
      stages_of_call<dim, Stage<dim>>(gpu, call, partials, most_sharing<dim, true, false>());
  const int rotations = tokens != nullptr ? static_cast<int>(call.n_q) * tokens->pairs : 0;
  const Grid grid = grid_of_call(gpu, call, partials, shared_bytes<dim>(stages, rotations));
  const NewTokens none;
  if (dim <= kMostCodes && options.codes_in_registers) {
    launch_codes<T, std::min(dim, kMostCodes)>(ctx, call, options, partials);
  } else if (tokens != nullptr) {
    start(attend<T, dim, true, true>, grid, call, options.units, partials, stages, *tokens);
  } else if (is_lean(call) && options.units.vectors && !is_pattern(call)) {
    start(attend<T, dim, true, false>, grid, call, options.units, partials, stages, none);
  } else {
    start(attend<T, dim, false, false>, grid, call, options.units, partials, stages, none);
  }
  if (partials.splits == 1 || partials.counters != nullptr) return;
  start(merge<T, dim>,
        {.blocks = (slots * partials.rows + kWarps - 1) / kWarps,
         .threads = kThreads,
         .overlaps = gpu.capability >= 90},
        call, partials);
}

}  // namespace tessera::cuda::split
