// cuda.persistent: all layers of a step of one token in one kernel. One block stays on each
// multiprocessor. Weights stream through its shared memory without a pause (weights.cuh), and
// blocks exchange activations through global memory. Every block has the whole residual stream x,
// in f32 (residual.cuh). The two kinds of layers (layer_kinds.cuh):
//
//   parallel (GPT-NeoX)                          serial (Llama)
//
//   wait HaveSums: x += sums                     wait HaveSums: x += sums
//   norm1, norm2                                 norm1
//   qkv product             raise HaveQkv        qkv product                raise HaveQkv
//   up product, activation  raise HaveActivated  wait HaveQkv: attention    raise HaveAttended
//   wait HaveQkv: attention raise HaveAttended   wait HaveAttended: output  raise HaveOutput
//   wait HaveActivated: down product             wait HaveOutput: x += sums
//   wait HaveAttended: output product            norm2
//     down's sums + output's raise HaveSums      gate, up; act(gate) * up   raise HaveActivated
//                                                wait HaveActivated: down   raise HaveSums
//
// In a parallel layer, a block has other work between raising a signal and waiting for it, except
// at the end: only one wait of four costs time. In a serial layer, all five do. Loads of weights
// never wait: while a block waits, its ring fills up.
//
// The products into the residual stream have few rows (2560 rows are 160 tiles for 132 blocks), so
// their depth is cut into parts. Each reader adds up the sums of the parts in order, for the same
// bits every time.
//
// examples/learn has no step for it. Step 7 teaches a ring that is filled ahead of its use;
// split.cuh explains how the results of split keys are merged.
#pragma once

#include "cuda/decode/attended.cuh"
#include "cuda/decode/attention.cuh"
#include "cuda/decode/call.h"
#include "cuda/decode/finish.cuh"
#include "cuda/decode/layer_kinds.cuh"
#include "cuda/decode/places.cuh"
#include "cuda/decode/residual.cuh"
#include "cuda/decode/token_row.cuh"
#include "cuda/decode/weights.cuh"
#include "cuda/tile/grid_dependency.cuh"

namespace tessera::cuda::decode {

// ---- before a product ---------------------------------------------------------------------------

// Loads a product's activations into shared memory: norms of x, or other blocks' results.
template <typename Kind, typename Layer>
struct Activations {
  using T = typename Kind::Element;
  const Call& call;
  const Places<Kind>& shared;
  const KeyRange range;
  const int items;        // of attention, which blocks divide
  T* const input;         // a product's input
  T* const second_input;  // parallel: up's input, after zeros of its own

  // Where the keys are is the same for all layers.
  __device__ Activations(const Call& from, const Places<Kind>& to)
      : call(from),
        shared(to),
        range(from, Layer::kFewestKeys),
        items(from.teams * range.splits),
        input(to.activations()),
        second_input(input + from.stages[kQkv].units * Kind::kDepth + Places<Kind>::kZeros) {}

  template <typename Stream>
  __device__ void load(int l, int stage, Stream& residual) const {
    const LayerWeights& layer = shared.layers[l];
    if (stage == kQkv || (Layer::kSerial && stage == kUp)) normalise(l, stage, residual);
    if (stage == Layer::kAttendsBefore) attend_to_keys(layer);
    if (stage == kDown) load_activated();
    if (stage == kOutput) load_attended();
  }

 private:
  template <typename Stream>
  __device__ void normalise(int l, int stage, Stream& residual) const {
    using Vectors = NormVectors<Layer::kVectors>;
    const LayerWeights& layer = shared.layers[l];
    const int thread = static_cast<int>(threadIdx.x);
    // Weights are in flight while the sums are.
    if constexpr (Layer::kSerial) {
      const Vectors weight(call, layer.norm_weight[stage == kUp]);
      if (l > 0 || stage == kUp) {
        Signals::receive(stage == kUp ? Layer::kHaveOutput : Layer::kHaveSums);
        residual.add_sums(call.stages[stage == kUp ? kOutput : kDown].parts);
      }
      residual.rms_norm(weight, shared.partial, input);
    } else {
      const Vectors weights[] = {{call, layer.norm_weight[0]}, {call, layer.norm_weight[1]}};
      const Vectors biases[] = {{call, layer.norm_bias[0]}, {call, layer.norm_bias[1]}};
      if (l > 0) {
        Signals::receive(Layer::kHaveSums);
        residual.add_sums(call.stages[kDown].parts);
      }
      residual.layer_norms(weights, biases, shared.partial, {input, second_input});
    }
    const int block = static_cast<int>(blockIdx.x);
    if (stage == kQkv && block < items) {
      fetch_keys(call, layer, *shared.first_item, range.end - 1, shared.first_keys);
    }
    if (thread < Places<Kind>::kZeros) {  // other products have overwritten second_input's zeros
      shared.x[thread] = T{};
      if constexpr (!Layer::kSerial) (second_input - Places<Kind>::kZeros)[thread] = T{};
    }
  }
  __device__ void attend_to_keys(const LayerWeights& layer) const {
    const int block = static_cast<int>(blockIdx.x);
    if (block >= items) Signals::receive(Layer::kHaveQkv);
    for (int i = block; i < items; i += static_cast<int>(gridDim.x)) {
      const Item item = i == block ? *shared.first_item : item_of<Layer>(call, range, i);
      attend<T, Layer>(call, layer, item, range.end - 1, i == block, shared.first_keys,
                       shared.rotations, reinterpret_cast<float*>(input));
    }
    Signals::hand_over(Layer::kHaveAttended);
  }
  // Loads only the parts of the depth that the block needs.
  __device__ void load_activated() const {
    Signals::receive(Layer::kHaveActivated);
    const int depth = call.stages[kDown].units * Kind::kDepth;
    const auto* from = reinterpret_cast<const uint4*>(static_cast<const T*>(call.activated) +
                                                      shared.stages[kDown].first_part * depth);
    const int vectors = shared.stages[kDown].parts * depth / 8;
    for (int i = static_cast<int>(threadIdx.x); i < vectors; i += kThreads) {
      reinterpret_cast<uint4*>(input)[i] = __ldcg(from + i);
    }
  }
  __device__ void load_attended() const {
    Signals::receive(Layer::kHaveAttended);
    const int depth = call.stages[kOutput].units * Kind::kDepth;
    const int first = shared.stages[kOutput].first_part * depth;
    const int vectors = shared.stages[kOutput].parts * depth / 4;
    // As many as a thread has vectors, in the models that matter.
    constexpr int kAtOnce = Layer::kSerial ? 3 : Kind::kFormat == Format::dense ? 2 : 1;
    for (int i = static_cast<int>(threadIdx.x); i < vectors; i += kAtOnce * kThreads) {
      const Attended<kAtOnce> attended(call, range.splits, first, vectors, i);
#pragma unroll
      for (int v = 0; v < kAtOnce; ++v) {
        const int at = i + v * kThreads;
        if (at < vectors) reinterpret_cast<uint2*>(input)[at] = in_halves<T>(attended.out[v]);
      }
    }
  }
};

// ---- the kernel ---------------------------------------------------------------------------------

// Passes other blocks' signals on to the workers.
template <typename Layer>
__device__ inline void pass_signals_on(const Call& call) {
  for (int l = 1; l <= call.layers; ++l) {
    for (int s = 0; s < Layer::kSignals; ++s) {
      Signals::pass_on(s, call.signals + s * kSignalPitch, l * static_cast<int>(gridDim.x));
    }
  }
}

// Block 0 ends with x, or with its final norm.
template <typename Kind, typename Layer, typename Stream>
__device__ inline void store_result(const Call& call, const Places<Kind>& shared,
                                    Stream& residual) {
  using Vectors = NormVectors<Layer::kVectors>;
  const bool normalises = call.final_weight != nullptr;
  Vectors weight, bias;
  if (normalises) {  // in flight while the last sums are
    weight = Vectors(call, call.final_weight);
    if constexpr (!Layer::kSerial) bias = Vectors(call, call.final_bias);
  }
  residual.add_sums(call.stages[kDown].parts);
  if (!normalises) return residual.store();
  auto* const to = static_cast<typename Kind::Element*>(call.x);
  if constexpr (Layer::kSerial) {
    residual.rms_norm(weight, shared.partial, to);
  } else {
    residual.layer_norms({weight}, {bias}, shared.partial, {to});
  }
}

template <typename Kind, typename Layer>
__global__ void __launch_bounds__(kAllThreads, 1)
    persistent_kernel(const __grid_constant__ Call call) {
  using T = typename Kind::Element;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const Places<Kind> shared(call);
  Residual<T, Layer::kVectors> residual(call, shared.residual);
  TokenId id(call.token);  // in flight while work is divided
  share_out<Kind, Layer>(call, shared);
  __syncthreads();
  id.look_up();  // in flight while weights are requested
  const WarpShare* shares = shared.shares + min(warp, kWarps - 1) * kStages;
  WeightRing<Kind, Layer> ring(call, shared.layers, shares,
                               shared.rings + warp * Kind::kUnits * Kind::kUnitBytes, lane,
                               warp < kWarps);
  // The first weights are in flight while x and the angles are made.
  if (warp < kWarps) residual.start(id.start(call));
  prepare_attention<Kind, Layer>(call, shared);
  __syncthreads();
  if (warp >= kWarps + kFinishingWarps) return pass_signals_on<Layer>(call);
  if (warp >= kWarps) return Finish<Kind, Layer>{call, shared}.all_layers();

  const Activations<Kind, Layer> activations(call, shared);

  for (int l = 0; l < call.layers; ++l) {
#pragma unroll 1  // one copy of the product's instructions
    for (int i = 0; i < kStages; ++i) {
      const int s = Layer::stage(i);
      // Each load overwrites the input of the product before it. It begins with a signal that all
      // workers receive, so none of them is still at that product.
      activations.load(l, s, residual);
      Signals::sync_workers();

      const T* from = !Layer::kSerial && s == kUp ? activations.second_input : activations.input;
      multiply_share(ring, call.stages[s], shares[s], from, shared.slots_of(s), lane);
      if (Layer::kSerial || s != kDown) Signals::hand_over(Layer::signal_of(s));
      if (s == kDown && l + 1 < call.layers) {
        fetch_norms<Layer>(call, shared.layers[l + 1], warp, lane);
      }
      ring.find_run();
    }
  }

  let_next_kernel_start();
  Signals::receive(Layer::kHaveSums);
  if (blockIdx.x == 0) store_result<Kind, Layer>(call, shared, residual);
  // The last block to end resets the signals to zero.
  constexpr int kEnded = Layer::kSignals;
  if (thread == 0 && atomicAdd(call.signals + kEnded * kSignalPitch, 1) ==
                         static_cast<std::int32_t>(gridDim.x) - 1) {
    for (int s = 0; s <= kEnded; ++s) call.signals[s * kSignalPitch] = 0;
  }
  wait_for_copies<0>();
}

}  // namespace tessera::cuda::decode
