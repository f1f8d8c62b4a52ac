// cuda.persistent: all layers of a step of one token in one kernel. One block stays on each
// multiprocessor; weights stream through its shared memory without a pause (weights.cuh), and the
// blocks hand activations to each other through global memory. Every block has the whole residual
// stream x, in f32 (residual.cuh). The two kinds of layers (layer_kinds.cuh):
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
// In a parallel layer, a block has other work between what it raises and what it waits for, except
// at the end: one wait of four costs time. In a serial one, each of five does. Weights do not wait
// for anything: while a block waits, its ring fills up.
//
// The products into the residual stream have few rows (2560 are 160 tiles for 132 blocks), so their
// depth is cut into parts, and the sums of the parts are added up by whoever reads them, in order:
// the same bits every time.
//
// The technique: splitting keys and merging is step 8 of examples/learn (docs/LEARN.md).
#pragma once

#include "cuda/decode/attention.cuh"
#include "cuda/decode/call.h"
#include "cuda/decode/layer_kinds.cuh"
#include "cuda/decode/residual.cuh"
#include "cuda/decode/rows.cuh"
#include "cuda/decode/weights.cuh"
#include "cuda/linear/epilogue.cuh"
#include "cuda/runtime/dynamic_shared.cuh"
#include "cuda/tile/grid_dependency.cuh"

namespace tessera::cuda::decode {

// ---- shared memory ------------------------------------------------------------------------------

// What lies in it, in this order.
template <typename Kind>
struct Places {
  using T = typename Kind::Element;
  // Where activations begin: TileWeights has zeros before them (stream_one_token.cuh).
  static constexpr int kZeros = Kind::kFormat == Format::dense ? 0 : kZeroBytes / 2;
  static constexpr int kRingBytes = kWarps * Kind::kUnits * Kind::kUnitBytes;

  char* rings;                // [kWarps][kUnits][unit]
  T* x;                       // zeros, then activations of a product, or attention's scratch
  float* slots;               // sums
  Eight* residual;            // [hidden / 8]
  float2* partial;            // [kWarps], of a norm
  CosSin* turns;              // [pairs]
  std::uint64_t* first_keys;  // [kFirstKeys]: where the first keys of the block's first share are
  Row* rows;                  // of all products
  WarpShare* shares;          // [kWarps][kStages]
  BlockStage* stages;         // [kStages]
  LayerWeights* layers;       // [layers]: a read of a kernel's arguments may wait for memory

  __device__ explicit Places(const Call& call) { place(call, dynamic_shared<char>()); }
  static int bytes(const Call& call) {
    Places places;
    return static_cast<int>(places.place(call, nullptr) - static_cast<char*>(nullptr));
  }
  __device__ T* activations() const { return x + kZeros; }

 private:
  Places() = default;
  TESSERA_HOST_DEVICE char* place(const Call& call, char* from) {
    const auto take = [&]<typename Element>(Element*& to, int count) {
      to = reinterpret_cast<Element*>(from);
      from += (static_cast<int>(sizeof(Element)) * count + 15) / 16 * 16;
    };
    take(rings, kRingBytes);
    take(x, call.x_bytes / static_cast<int>(sizeof(T)));
    take(slots, call.slot_floats);
    take(residual, call.hidden / 8);
    take(partial, kWarps);
    take(turns, call.pairs);
    take(first_keys, kFirstKeys);
    take(rows, call.most_rows);
    take(shares, kWarps * kStages);
    take(stages, kStages);
    take(layers, call.layers);
    return from;
  }
};

// Fills in what is the same for all layers: where weights are, and shares. All threads call it.
template <typename Kind, typename Layer>
__device__ void share_out(const Call& call, const Places<Kind>& shared) {
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  const auto* words = reinterpret_cast<const std::uint64_t*>(call.weights);
  for (int i = thread; i < call.layers * static_cast<int>(sizeof(LayerWeights) / 8);
       i += kAllThreads) {
    reinterpret_cast<std::uint64_t*>(shared.layers)[i] = words[i];
  }
  for (int s = 0, first_row = 0; s < kStages; ++s) {
    const StageShape& stage = call.stages[s];
    const BlockShare share(stage);
    const int rows = share.tasks * Kind::kRows;
    for (int i = thread; i < rows; i += kAllThreads) {
      shared.rows[first_row + i] = row_of<Kind, Layer>(call, s, share, i);
    }
    if (warp < kWarps && thread % 32 == 0) {
      shared.shares[warp * kStages + s] = WarpShare(stage, Kind::kDepth, warp);
    }
    if (thread == 0) {
      shared.stages[s] = {.first_row = first_row,
                          .rows = rows / stage.together,
                          .first_part = share.first_part,
                          .parts = share.last_part + 1 - share.first_part};
    }
    first_row += rows;
  }
  __syncthreads();
}

// ---- before a product ---------------------------------------------------------------------------

// Brings a product's activations to shared memory: norms of x, or what other blocks have made.
template <typename Kind, typename Layer>
struct Activations {
  using T = typename Kind::Element;
  const Call& call;
  const Places<Kind>& shared;
  const KeyRange range;
  const int items;        // of attention, which blocks share
  T* const input;         // what a product reads
  T* const second_input;  // parallel: what up reads, behind zeros of its own

  // Where the keys are is the same for all layers.
  __device__ Activations(const Call& from, const Places<Kind>& to)
      : call(from),
        shared(to),
        range(from),
        items(from.teams * range.splits),
        input(to.activations()),
        second_input(input + from.stages[kQkv].units * Kind::kDepth + Places<Kind>::kZeros) {
    const int block = static_cast<int>(blockIdx.x);
    if (block < items) find_first_keys(call, range, block / call.teams, shared.first_keys);
  }

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
    // Weights are on their way while the sums are.
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
      residual.layer_norms(weights, biases, shared.partial, input, second_input);
    }
    const int block = static_cast<int>(blockIdx.x);
    if (stage == kQkv && block < items) {
      const int split = block / call.teams, team = block - split * call.teams;
      fetch_keys(call, layer, range, team_of<Layer>(call, team).kv_head, split, shared.first_keys);
    }
    if (thread < Places<Kind>::kZeros) {  // other products have overwritten those of second_input
      shared.x[thread] = T{};
      if constexpr (!Layer::kSerial) (second_input - Places<Kind>::kZeros)[thread] = T{};
    }
  }
  __device__ void attend_to_keys(const LayerWeights& layer) const {
    const int block = static_cast<int>(blockIdx.x);
    if (block >= items) Signals::receive(Layer::kHaveQkv);
    for (int item = block; item < items; item += static_cast<int>(gridDim.x)) {
      const int split = item / call.teams, team = item - split * call.teams;
      attend<T, Layer>(call, layer, range, team_of<Layer>(call, team), split, item == block,
                       shared.first_keys, shared.turns, reinterpret_cast<float*>(input));
    }
    Signals::hand_over(Layer::kHaveAttended);
  }
  // Only the parts of the depth that the block needs.
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
    for (int i = static_cast<int>(threadIdx.x); i < vectors; i += kThreads) {
      reinterpret_cast<uint2*>(input)[i] =
          in_halves<T>(attended_at(call, range.splits, first + 4 * i));
    }
  }
};

// ---- after a product ----------------------------------------------------------------------------

// The first row's ends of a thread, and those of the row that meets it: of parallel layers down's
// beside output's, of serial ones up's beside gate's.
template <typename T>
struct ThreadEnds {
  RowEnds<T> own, other;
};

// Where the rows of a weight begin among those of its product.
template <typename Layer>
__device__ inline int first_of(const Call& call, int weight) {
  if (!Layer::kSerial) return 0;
  return weight == kKeyWeight ? call.k.first : weight == kValueWeight ? call.v.first : 0;
}

// The sums of a block's rows become qkv, what is activated, or what is added to x. Parallel layers:
// those of down are still in down_slots when output's are there.
template <typename Kind, typename Layer>
__device__ void finish_rows(const Call& call, const Places<Kind>& shared, const LayerWeights& layer,
                            int stage, ThreadEnds<typename Kind::Element> ends, const float* slots,
                            const float* down_slots) {
  using T = typename Kind::Element;
  const int thread = static_cast<int>(threadIdx.x);
  const BlockStage of_block = shared.stages[stage];
  const Row* rows = shared.rows + of_block.first_row;
  for (int i = thread; i < of_block.rows; i += kThreads) {
    const Row row = rows[i];
    if (i != thread) ends.own = load_ends<Kind>(layer, row.weight, row.n);
    float value = product_of<Kind>(row, ends.own.scale, slots);
    if (stage == kOutput || (Layer::kSerial && stage == kDown)) {
      float bias = to_f32(ends.own.bias);
      if constexpr (!Layer::kSerial) {
        const Row of_down = shared.rows[shared.stages[kDown].first_row + i];
        if (i != thread) ends.other = load_ends<Kind>(layer, kDown, row.n);
        value += product_of<Kind>(of_down, ends.other.scale, down_slots);
        bias += to_f32(ends.other.bias);
      }
      if (row.part == 0) value += bias;
      call.sums[row.part * call.hidden + row.n] = value;
      continue;
    }
    value += to_f32(ends.own.bias);
    if (stage == kUp) value = activate_apart(call.activation, value);
    if (Layer::kSerial && stage == kUp) {
      const Row of_up = rows[of_block.rows + i];
      if (i != thread) ends.other = load_ends<Kind>(layer, kUpWeight, row.n);
      value *= product_of<Kind>(of_up, ends.other.scale, slots) + to_f32(ends.other.bias);
    }
    static_cast<T*>(stage == kUp ? call.activated
                                 : call.qkv)[row.n + first_of<Layer>(call, row.weight)] =
        from_f32<T>(value);
  }
  Signals::hand_over(Layer::signal_of(stage));
}

// ---- the kernel ---------------------------------------------------------------------------------

// Tell the other blocks what the workers have written, and the workers what the others have.
template <typename Layer>
__device__ inline void raise_signals(const Call& call) {
  for (int l = 1; l <= call.layers; ++l) {
    for (int s = 0; s < Layer::kSignals; ++s) {
      Signals::raise_when_handed_over(s, call.signals + s * kSignalPitch);
    }
  }
}
template <typename Layer>
__device__ inline void pass_signals_on(const Call& call) {
  for (int l = 1; l <= call.layers; ++l) {
    for (int s = 0; s < Layer::kSignals; ++s) {
      Signals::pass_on(s, call.signals + s * kSignalPitch, l * static_cast<int>(gridDim.x));
    }
  }
}

template <typename Kind, typename Layer>
__global__ void __launch_bounds__(kAllThreads, 1)
    persistent_kernel(const __grid_constant__ Call call) {
  using T = typename Kind::Element;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const Places<Kind> shared(call);
  share_out<Kind, Layer>(call, shared);
  if (warp >= kWarps) {
    return warp == kWarps ? raise_signals<Layer>(call) : pass_signals_on<Layer>(call);
  }
  const WarpShare* shares = shared.shares + warp * kStages;
  WeightRing<Kind, Layer> ring(call, shared.layers, shares,
                               shared.rings + warp * Kind::kUnits * Kind::kUnitBytes, lane);

  Residual<T, Layer::kVectors> residual(call, shared.residual);
  residual.start();
  const std::int64_t position = static_cast<const std::int64_t*>(call.positions)[0];
  for (int i = thread; i < call.pairs; i += kThreads) {
    shared.turns[i] = cos_sin(position, call.inv_freq[i]);
  }
  const Activations<Kind, Layer> activations(call, shared);
  // Parallel layers: the sums of down stay until those of output are there.
  float* output_slots = shared.slots;
  if constexpr (!Layer::kSerial) output_slots += shared.stages[kDown].rows + kWarps * Kind::kRows;
  ThreadEnds<T> ends;

  for (int l = 0; l < call.layers; ++l) {
    const LayerWeights& layer = shared.layers[l];
#pragma unroll 1  // one copy of the product's instructions
    for (int i = 0; i < kStages; ++i) {
      const int s = Layer::stage(i);
      const BlockStage of_block = shared.stages[s];
      const Row* rows = shared.rows + of_block.first_row;
      if (thread < of_block.rows) {
        ends.own = load_ends<Kind>(layer, rows[thread].weight, rows[thread].n);
        if (Layer::kSerial && s == kUp) {
          ends.other = load_ends<Kind>(layer, kUpWeight, rows[thread].n);
        }
      }
      activations.load(l, s, residual);
      Signals::sync_workers();

      // TileWeights' sums find their zeros before the activations.
      T* from = !Layer::kSerial && s == kUp ? activations.second_input : activations.input;
      float* slots = s == kOutput ? output_slots : shared.slots;
      multiply_share(ring, call.stages[s], shares[s], from - Places<Kind>::kZeros, slots, lane);
      if (s == kDown && l + 1 < call.layers) {
        fetch_norms<Layer>(call, shared.layers[l + 1], warp, lane);
      }
      if (!Layer::kSerial && s == kDown) {
        ends.other = ends.own;
        continue;
      }
      Signals::sync_workers();
      finish_rows<Kind, Layer>(call, shared, layer, s, ends, slots, shared.slots);
      Signals::sync_workers();  // before anyone overwrites sums
    }
  }

  let_next_kernel_start();
  Signals::receive(Layer::kHaveSums);
  if (blockIdx.x == 0) {
    residual.add_sums(call.stages[kDown].parts);
    residual.store();
  }
  // Whoever ends last leaves zeros behind.
  constexpr int kEnded = Layer::kSignals;
  if (thread == 0 && atomicAdd(call.signals + kEnded * kSignalPitch, 1) ==
                         static_cast<std::int32_t>(gridDim.x) - 1) {
    for (int s = 0; s <= kEnded; ++s) call.signals[s * kSignalPitch] = 0;
  }
  wait_for_copies<0>();
}

}  // namespace tessera::cuda::decode
