// Attention, forward, where a sequence has few query rows and its keys and values are codes of 8
// bits: cuda.split.codes. It is the split kernel (split.cuh) with a different path from memory to
// the tensor cores:
//
//   global     | codes | scales |
//                 | cp.async, into a ring of each warp: no waiting
//   shared     | codes | scales |
//                 | vectors, as they lie
//   registers  | codes |  -->  | pairs of f16 or bf16 |  -->  mma.sync (code_pairs.cuh)
//
// Decoded values are never written back. ldmatrix, which moves 16-bit numbers to the lanes that
// need them, cannot do so for bytes. But the order of elements along an operand of mma.sync is
// free, as long as both operands agree, so each lane takes adjacent bytes. A step has 16 keys. Lane
// 4 g + t has, at head dim 128,
//
//   of keys     key g and key g + 8                 of values     keys 2t, 2t + 1, 2t + 8, 2t + 9
//
//     | t = 0  | t = 1  | t = 2  | t = 3  |           | g = 0  | g = 1  |  ..  | g = 7  |
//     | 0..31  | 32..63 | 64..95 | 96..127|           | 0..15  | 16..31 |  ..  |112..127|
//
//   Word s of a key is the lane's part of step s      Byte i is column g of piece i of out: element
//   along the head dim. The queries are put in        16 g + i. Bytes of two keys are put side by
//   the same order, once (QueryFragments).            side first, because pairs are along keys.
//
// Scores are multiplied by the scale of their key, and weights by the scale of their value, in f32.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/attention/call.h"
#include "cuda/attention/portable/code_pairs.cuh"
#include "cuda/attention/portable/fragments.cuh"
#include "cuda/attention/portable/split_block.cuh"
#include "cuda/attention/portable/split_codes_block.cuh"
#include "cuda/attention/portable/split_merge.cuh"
#include "cuda/attention/portable/tensor_core.h"
#include "cuda/runtime/dynamic_shared.cuh"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/state.h"
#include "cuda/tile/grid_dependency.cuh"

namespace tessera::cuda::split {

// Blocks that share a multiprocessor, with 168 registers for each thread.
inline constexpr int kCodesSharing = 3;

// The queries as an operand of mma.sync, in the order of KeyCodes. Wide heads leave no registers
// for them; they stay in shared memory, where the rows were.
template <int dim, typename Pairs>
struct QueryFragments {
  static constexpr bool kKept = dim <= 96;
  static constexpr int kSteps = dim / 16;
  std::uint32_t a[kKept ? kSteps : 1][4];

  // All threads of a block call it.
  __device__ void load(unsigned char* q) {
    if constexpr (kKept) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) load_in_code_order<dim, Pairs>(q, s, a[s]);
    } else {
      constexpr int kOwn = kSteps / kWarps;  // each warp makes this many
      std::uint32_t own[kOwn][4];
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        load_in_code_order<dim, Pairs>(q, warp_of_block() * kOwn + i, own[i]);
      }
      __syncthreads();  // no thread still reads the rows
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        place(q, warp_of_block() * kOwn + i) =
            make_uint4(own[i][0], own[i][1], own[i][2], own[i][3]);
      }
      __syncthreads();
    }
  }
  // The operand of step s.
  __device__ const std::uint32_t (&step(unsigned char* q, int s))[4] {
    if constexpr (kKept) return a[s];
    const uint4 x = place(q, s);
    a[0][0] = x.x, a[0][1] = x.y, a[0][2] = x.z, a[0][3] = x.w;
    return a[0];
  }

 private:
  __device__ static uint4& place(unsigned char* q, int s) {
    return reinterpret_cast<uint4*>(q)[s * 32 + lane_of_warp()];
  }
};

// One warp's steps.
template <typename T, int dim, DType stored>
struct CodeTileLoop {
  using Pairs = CodePairs<T, stored>;
  static constexpr float kGain = code_gain<T, stored>();             // of weights
  static constexpr float kOutFactor = 1.f / (kGain * Pairs::kUnit);  // of sums

  const Part& part;
  const KeyTileLoop& loop;
  const CodeLoader<dim>& load;
  Shared<dim, CodeStage<dim>>& shared;
  int stages;

  __device__ void run(WarpRows<1, dim>& state) {
    const float factor = part.rows.call.q_factor / Pairs::kUnit;
    WarpSteps<true> loading{part, loop, part.begin + warp_of_block()}, computing = loading;
    QueryFragments<dim, Pairs> queries;
    CodeStage<dim>* const ring = shared.ring(stages);
    int into = 0, from = 0;
    for (int started = 1;; ++started) {  // steps whose copies have been started, each a group
      const int ahead = loading.take();
      if (ahead >= 0) load.step(ahead, ring[into]);
      if (started == 1) copy_queries<T, dim>(part.rows, true, shared.q);
      close_copy_group();
      into = next(into);
      if (started < stages) continue;
      wait_for_all_but(stages - 1);
      if (started == stages) {
        __syncthreads();  // the queries have arrived
        queries.load(shared.q);
      }
      const int k0 = computing.take();
      if (k0 < 0) break;
      __syncwarp();
      const CodeStage<dim>& stage = ring[from];
      Scores<1, kStepKeys> scores;
      multiply_keys(queries, stage, scores);
      scale(stage.scales, 1.f, scores);
      if (!loop.full(k0, kStepKeys)) hide(part.rows, 0, loop, k0, scores);
      update(factor, scores, state);
      scale(stage.scales + kStepKeys, kGain, scores);
      multiply_values(scores[0], stage, state.out[0]);
      __syncwarp();  // no lane still reads the stage
      from = next(from);
    }
    wait_for_copies<0>();
  }

 private:
  __device__ int next(int stage) const { return stage + 1 == stages ? 0 : stage + 1; }

  // Multiplies the scores or weights of each key by its scale.
  __device__ static void scale(const float* scales, float gain, Scores<1, kStepKeys>& scores) {
    scale_columns(scores, [&](int c) { return gain * scales[c]; });
  }
  // scores = Q K^T, in units of the codes.
  __device__ void multiply_keys(QueryFragments<dim, Pairs>& queries, const CodeStage<dim>& stage,
                                Scores<1, kStepKeys>& scores) {
    std::uint32_t words[2][KeyCodes<dim>::kWords];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      KeyCodes<dim>::read(stage.k, 8 * n + lane_of_warp() / 4, words[n]);
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[0][n][i] = 0.f;
    }
#pragma unroll
    for (int s = 0; s < dim / 16; ++s) {
      const std::uint32_t(&a)[4] = queries.step(shared.q, s);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        std::uint32_t b[2];
        Pairs::decode(words[n][s], b);
        mma_16x8x16(scores[0][n], a, b, T());
      }
    }
  }
  // sums += P V, columns in the order of ValueCodes.
  __device__ static void multiply_values(const float (&weights)[2][4], const CodeStage<dim>& stage,
                                         float (&sums)[dim / 8][4]) {
    using Values = ValueCodes<dim>;
    const int g = lane_of_warp() / 4, t = lane_of_warp() % 4;
    std::uint32_t a[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* pair = &weights[i / 2][i % 2 * 2];
      a[i] = pack(pair[0], pair[1], T());
    }
    const unsigned char* const first = stage.v + 2 * t * Values::kRowBytes;
    add_columns<Values::kBytes>(first + Values::kBytes * g, a, sums);
    if constexpr (Values::kRest > 0) {
      add_columns<Values::kRest, Values::kBytes>(first + Values::kWhole + Values::kRest * g, a,
                                                 sums);
    }
  }
  // Adds the pieces in `bytes` bytes of each of the lane's values, from piece `piece` on.
  template <int bytes, int piece = 0>
  __device__ static void add_columns(const unsigned char* from, const std::uint32_t (&a)[4],
                                     float (&sums)[dim / 8][4]) {
    constexpr int kWords = (bytes + 3) / 4;
    std::uint32_t words[4][kWords];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = i / 2 * 8 + i % 2;  // relative to the lane's first
      read_words<bytes>(from + key * ValueCodes<dim>::kRowBytes, words[i]);
    }
    add_code_columns<T, Pairs, bytes, piece>(words, a, sums);
  }
};

template <typename T, int dim, DType stored>
__global__ void __launch_bounds__(kThreads, kCodesSharing)
    attend_codes(const __grid_constant__ AttentionCall call, const __grid_constant__ KeyUnits units,
                 const __grid_constant__ Partials partials, int stages) {
  auto& shared = *dynamic_shared<Shared<dim, CodeStage<dim>>>();
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const Assignment own(call, partials, false);
  if (own.is_empty()) return;
  const Part part = own.part(call);
  if (call.page_table != nullptr) {
    list_pages(part, units, shared.pages);
    __syncthreads();
  }
  const CodeLoader<dim> load(part.rows, units, shared.pages);
  WarpRows<1, dim> state;
  state.clear();
  using Loop = CodeTileLoop<T, dim, stored>;
  Loop{part, own.loop, load, shared, stages}.run(state);
  __syncthreads();  // the rings are free
  share(state, own.rows, shared, [&](int side, float* out) {
    const int column = 2 * (lane_of_warp() % 4);
#pragma unroll
    for (int n = 0; n < dim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        out[ValueCodes<dim>::element(n, column + i)] =
            Loop::kOutFactor * state.out[0][n][2 * side + i];
      }
    }
  });
  __syncthreads();
  finish<T, dim>(own, part, shared, partials);
}

template <typename T, int dim>
void launch_codes(Context& ctx, const AttentionCall& call, const TensorCoreOptions& options,
                  const Partials& partials) {
  using Stage = CodeStage<dim>;
  const DeviceLimits& gpu = state_of(ctx).limits();
  const int stages = stages_of_call<dim, Stage>(gpu, call, partials, kCodesSharing);
  const Grid grid = grid_of_call(gpu, call, partials, shared_bytes<dim, Stage>(stages, 0));
  const Launch start(ctx, "attention");
  if (call.stored == DType::i8) {
    start(attend_codes<T, dim, DType::i8>, grid, call, options.units, partials, stages);
  } else {
    start(attend_codes<T, dim, DType::f8e4m3>, grid, call, options.units, partials, stages);
  }
}

}  // namespace tessera::cuda::split
