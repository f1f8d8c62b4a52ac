// The finishers of the persistent kernel turn a product's sums into its result. They have no weight
// copies in flight, so a signal that they raise waits only for their own writes, and the workers go
// on.
#pragma once

#include "cuda/decode/call.h"
#include "cuda/decode/layer_kinds.cuh"
#include "cuda/decode/places.cuh"
#include "cuda/decode/rows.cuh"
#include "cuda/linear/epilogue.cuh"

namespace tessera::cuda::decode {

// Where the rows of a weight begin among the rows of its product.
template <typename Layer>
__device__ inline int first_of(const Call& call, int weight) {
  if (!Layer::kSerial) return 0;
  return weight == kKeyWeight ? call.k.first : weight == kValueWeight ? call.v.first : 0;
}

// Turns the sums of a block's rows into qkv, activations, or addends of x. In parallel layers,
// down's sums are kept until output's arrive.
template <typename Kind, typename Layer>
struct Finish {
  using T = typename Kind::Element;
  const Call& call;
  const Places<Kind>& shared;
  const int thread = static_cast<int>(threadIdx.x) - kThreads;

  // The other inputs of a row besides its sum, and of its partner row: in parallel layers, down's
  // row for output's; in serial ones, up's row for gate's.
  struct Ends {
    RowEnds<T> own, other;
  };

  __device__ Ends load(const LayerWeights& layer, int stage, const Row& row) const {
    Ends ends{.own = load_ends<Kind>(layer, row.weight, row.n), .other = {}};
    if (Layer::kSerial && stage == kUp) ends.other = load_ends<Kind>(layer, kUpWeight, row.n);
    if (!Layer::kSerial && stage == kOutput) ends.other = load_ends<Kind>(layer, kDown, row.n);
    return ends;
  }

  __device__ void rows(const LayerWeights& layer, int stage) const {
    constexpr int kAtOnce = 2;  // of a thread
    const BlockStage of_block = shared.stages[stage];
    const Row* rows = shared.rows + of_block.first_row;
    Ends ends[kAtOnce];
    const auto load_from = [&](int first) {
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        const int i = first + r * kFinishers;
        if (i < of_block.rows) ends[r] = load(layer, stage, rows[i]);
      }
    };
    load_from(thread);  // from memory, while the workers multiply
    Signals::take_over(Layer::signal_of(stage));
    for (int first = thread; first < of_block.rows; first += kAtOnce * kFinishers) {
      if (first != thread) load_from(first);
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        const int i = first + r * kFinishers;
        if (i < of_block.rows) row(stage, rows, of_block.rows, i, ends[r]);
      }
    }
    raise(Layer::signal_of(stage));
  }
  // Finishes row i of the block's rows in a product.
  __device__ void row(int stage, const Row* rows, int count, int i, const Ends& ends) const {
    const Row row = rows[i];
    const float* slots = shared.slots_of(stage);
    float value = product_of<Kind>(row, ends.own.scale, slots);
    if (stage == kOutput || (Layer::kSerial && stage == kDown)) {
      float bias = to_f32(ends.own.bias);
      if constexpr (!Layer::kSerial) {
        const Row of_down = shared.rows[shared.stages[kDown].first_row + i];
        value += product_of<Kind>(of_down, ends.other.scale, shared.slots_of(kDown));
        bias += to_f32(ends.other.bias);
      }
      if (row.part == 0) value += bias;
      call.sums[row.part * call.hidden + row.n] = value;
      return;
    }
    value += to_f32(ends.own.bias);
    if (stage == kUp) value = activate_apart(call.activation, value);
    if (Layer::kSerial && stage == kUp) {
      const Row of_up = rows[count + i];
      value *= product_of<Kind>(of_up, ends.other.scale, slots) + to_f32(ends.other.bias);
    }
    static_cast<T*>(stage == kUp ? call.activated
                                 : call.qkv)[row.n + first_of<Layer>(call, row.weight)] =
        from_f32<T>(value);
  }
  __device__ void raise(int signal) const {
    Signals::raise(signal, call.signals + signal * kSignalPitch);
  }

  __device__ void all_layers() const {
    for (int l = 0; l < call.layers; ++l) {
#pragma unroll 1
      for (int i = 0; i < kStages; ++i) {
        const int s = Layer::stage(i);
        if (s == Layer::kAttendsBefore) {
          Signals::take_over(Layer::kHaveAttended);
          raise(Layer::kHaveAttended);
        }
        if (Layer::kSerial || s != kDown) rows(shared.layers[l], s);
      }
    }
  }
};

}  // namespace tessera::cuda::decode
