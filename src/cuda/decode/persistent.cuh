// cuda.persistent: all layers of a step of one token in one kernel. One block stays on each
// multiprocessor; weights stream through its shared memory without a pause (weights.cuh), and the
// blocks hand activations to each other through global memory. For a layer with a parallel residual
// (GPT-NeoX):
//
//   x in shared memory of every block, f32
//   |  norm1, norm2
//   |  qkv product             -> qkv         raise HaveQkv
//   |  up product, activation  -> activated   raise HaveActivated
//   |  wait HaveQkv: attention -> attended    raise HaveAttended
//   |  wait HaveActivated: down product       (sums stay in shared memory)
//   |  wait HaveAttended: output product      -> sums      raise HaveSums
//   v  wait HaveSums: x += sums + biases
//
// A block has other work between what it raises and what it waits for, except at the end of a
// layer: one wait of four costs time. Weights do not wait for anything: while a block waits, its
// ring fills up.
//
// The products into the residual stream have few rows (2560 are 160 tiles for 132 blocks), so their
// depth is cut into parts, and the sums of the parts are added up by whoever reads them, in order:
// the same bits every time.
//
// The technique: splitting keys and merging is step 8 of examples/learn (docs/LEARN.md).
#pragma once

#include "cuda/decode/attention.cuh"
#include "cuda/decode/call.h"
#include "cuda/decode/weights.cuh"
#include "cuda/linear/epilogue.cuh"
#include "cuda/runtime/dynamic_shared.cuh"
#include "cuda/tile/grid_dependency.cuh"
#include "cuda/tile/grid_signal.cuh"

namespace tessera::cuda::decode {

// ---- shared memory ------------------------------------------------------------------------------

// Eight neighbours.
struct Eight {
  float4 low, high;
};

// A row of a block's tasks: which it is, and the slots of its sums. The same for all layers.
struct Row {
  int n;                      // of the weight
  std::uint16_t slot, count;  // the first of the row's floats among the slots, and how many slots
};

// What lies in it, in this order.
template <typename Kind>
struct Places {
  using T = typename Kind::Element;
  // Where activations begin: TileWeights has zeros before them (stream_one_token.cuh).
  static constexpr int kZeros = Kind::kFormat == Format::dense ? 0 : kZeroBytes / 2;
  static constexpr int kRingBytes = kWarps * Kind::kUnits * Kind::kUnitBytes;

  char* rings;                // [kWarps][kUnits][unit]
  T* x;                       // zeros, then activations of a product
  float* slots;               // sums, or attention's scratch
  Eight* residual;            // [hidden / 8]
  float2* partial;            // [kWarps], of a norm
  CosSin* turns;              // [pairs]
  std::uint64_t* first_keys;  // [kFirstKeys]: where the first keys of the block's first share are
  Row* rows;                  // [kStages][most rows]
  WarpShare* shares;          // [kWarps][kStages]
  int* row_counts;            // [kStages]
  LayerWeights* layers;       // [layers]: a read of a kernel's arguments may wait for memory

  __device__ explicit Places(const Call& call) { place(call, dynamic_shared<char>()); }
  static int bytes(const Call& call) {
    Places places;
    return static_cast<int>(places.place(call, nullptr) - static_cast<char*>(nullptr));
  }

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
    take(residual, kThreads);
    take(partial, kWarps);
    take(turns, call.pairs);
    take(first_keys, kFirstKeys);
    take(rows, kStages * call.most_rows);
    take(shares, kWarps * kStages);
    take(row_counts, kStages);
    take(layers, call.layers);
    return from;
  }
};

// ---- the ends of products -----------------------------------------------------------------------

template <typename Kind>
__device__ inline Row row_of(const StageShape& stage, const BlockShare& share, int i) {
  const int task = i / Kind::kRows, row = i % Kind::kRows;
  const int first = share.warps.warp_of(task * stage.units);
  const int last = share.warps.warp_of((task + 1) * stage.units - 1);
  return {.n = (share.first + task) % stage.tiles * Kind::kRows + row,
          .slot = static_cast<std::uint16_t>((task + first) * Kind::kRows + row),
          .count = static_cast<std::uint16_t>(last - first + 1)};
}

// What belongs to a row besides its sum. A thread loads those of its first row before the product,
// so that nothing comes from memory at the end.
template <typename T>
struct RowEnds {
  float scale = 0;
  T bias{};  // as loaded: to convert it is to wait for it
};
template <typename Kind>
__device__ inline RowEnds<typename Kind::Element> load_ends(const LayerWeights& layer, int stage,
                                                            int n) {
  using T = typename Kind::Element;
  RowEnds<T> ends;
  if constexpr (Kind::kFormat != Format::dense) ends.scale = layer.row_scales[stage][n];
  if (const auto* bias = static_cast<const T*>(layer.bias[stage])) ends.bias = bias[n];
  return ends;
}

// The product of a row, without bias.
template <typename Kind>
__device__ inline float product_of(const Row& row, float scale, const float* slots) {
  float sum = 0;
#pragma unroll 1  // two or three
  for (int s = 0; s < row.count; ++s) sum += slots[row.slot + s * Kind::kRows];
  if constexpr (Kind::kFormat != Format::dense) {
    sum = StreamOne<Kind::kFormat, typename Kind::Element>::in_full(sum, false) * scale;
  }
  return sum;
}

// ---- the residual stream ------------------------------------------------------------------------

template <typename T>
__device__ inline Eight in_floats(const uint4& words) {
  const auto half = [](std::uint32_t word) { return to_f32(T{static_cast<std::uint16_t>(word)}); };
  return {{half(words.x), half(words.x >> 16), half(words.y), half(words.y >> 16)},
          {half(words.z), half(words.z >> 16), half(words.w), half(words.w >> 16)}};
}
template <typename T>
__device__ inline uint2 in_halves(const float4& x) {
  return {halves_of<T>(x.x, x.y), halves_of<T>(x.z, x.w)};
}
template <typename T>
__device__ inline uint4 in_halves(const Eight& x) {
  const uint2 low = in_halves<T>(x.low), high = in_halves<T>(x.high);
  return {low.x, low.y, high.x, high.y};
}
__device__ inline float4 plus(const float4& a, const float4& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}
__device__ inline float4 affine(const float4& x, const float4& w, const float4& b) {
  return {x.x * w.x + b.x, x.y * w.y + b.y, x.z * w.z + b.z, x.w * w.w + b.w};
}
__device__ inline float total(const float4& x) { return (x.x + x.y) + (x.z + x.w); }

// The weights of both norms, a thread's eight neighbours of each.
struct Norms {
  uint4 weights[2], biases[2];

  __device__ Norms(const Call& call, const LayerWeights& layer) {
    if (8 * static_cast<int>(threadIdx.x) >= call.hidden) return;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      weights[n] = static_cast<const uint4*>(layer.norm_weight[n])[threadIdx.x];
      biases[n] = static_cast<const uint4*>(layer.norm_bias[n])[threadIdx.x];
    }
  }
};

// x, of which a thread has eight neighbours, in shared memory. Every block has all of it.
template <typename T>
class Residual {
 public:
  __device__ Residual(const Call& call, Eight* x)
      : call_(call),
        at_(threadIdx.x),
        mine_(8 * static_cast<int>(threadIdx.x) < call.hidden),
        x_(x[threadIdx.x]) {}

  // Of the embedding.
  __device__ void start() {
    if (mine_) x_ = in_floats<T>(static_cast<const uint4*>(call_.x)[at_]);
  }
  // Adds what a layer has made of it.
  __device__ void add_sums() {
    if (!mine_) return;
    const auto* sums = reinterpret_cast<const float4*>(call_.sums) + 2 * at_;
    const int parts = call_.stages[kDown].parts, pitch = call_.hidden / 4;
    Eight of_parts[kMostParts] = {};
#pragma unroll
    for (int p = 0; p < kMostParts; ++p) {
      if (p < parts) of_parts[p] = {__ldcg(sums + p * pitch), __ldcg(sums + p * pitch + 1)};
    }
#pragma unroll
    for (int p = 0; p < kMostParts; ++p) {
      x_ = {plus(x_.low, of_parts[p].low), plus(x_.high, of_parts[p].high)};
    }
  }
  // Both norms of x, as two products take them. `partial`: two floats of each warp. Squares are
  // those of distances from the last layer's mean, so that nothing cancels where the mean is large.
  __device__ void normalise(const Norms& norms, float2* partial, T* first, T* second) {
    const float shift = mean_;
    Eight off{};
    float2 sums{};
    if (mine_) {
      const float4 away{-shift, -shift, -shift, -shift};
      off = {plus(x_.low, away), plus(x_.high, away)};
      const float4 &a = off.low, &b = off.high;
      sums.x = total(a) + total(b);
      sums.y = total({a.x * a.x + b.x * b.x, a.y * a.y + b.y * b.y, a.z * a.z + b.z * b.z,
                      a.w * a.w + b.w * b.w});
    }
    sums.x = warp_reduce(sums.x, Sum());
    sums.y = warp_reduce(sums.y, Sum());
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sums;
    Signals::sync_workers();
    sums = partial[0];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) sums = {sums.x + partial[w].x, sums.y + partial[w].y};
    const float size = 1.f / static_cast<float>(call_.hidden), from_shift = sums.x * size;
    const float variance = fmaxf(sums.y * size - from_shift * from_shift, 0.f);
    const float inverse = rsqrtf(variance + call_.eps), less = -from_shift * inverse;
    mean_ = shift + from_shift;
    if (!mine_) return;
    const float4 scale{inverse, inverse, inverse, inverse}, offset{less, less, less, less};
    const Eight x{affine(off.low, scale, offset), affine(off.high, scale, offset)};
    T* const to[] = {first, second};
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const Eight w = in_floats<T>(norms.weights[n]), b = in_floats<T>(norms.biases[n]);
      reinterpret_cast<uint4*>(to[n])[at_] =
          in_halves<T>(Eight{affine(x.low, w.low, b.low), affine(x.high, w.high, b.high)});
    }
  }
  __device__ void store() const {
    if (mine_) static_cast<uint4*>(call_.x)[at_] = in_halves<T>(x_);
  }

 private:
  const Call& call_;
  const unsigned at_;
  const bool mine_;
  float mean_ = 0;
  Eight& x_;
};

// The norms of the next layer come into the second cache, a few lines by each block.
__device__ inline void fetch_norms(const Call& call, const LayerWeights& layer, int warp,
                                   int lane) {
  constexpr int kLine = 128;
  static_assert(offsetof(LayerWeights, norm_bias) ==
                offsetof(LayerWeights, norm_weight) + 2 * sizeof(void*));
  const int byte = (static_cast<int>(blockIdx.x) * 32 + lane) * kLine;
  if (warp < 4 && byte < 2 * call.hidden) {
    prefetch(static_cast<const char*>((&layer.norm_weight[0])[warp]) + byte);
  }
}

// ---- the kernel ---------------------------------------------------------------------------------

// Tell the other blocks what the workers have written, and the workers what the others have.
__device__ inline void raise_signals(const Call& call) {
  for (int l = 1; l <= call.layers; ++l) {
    for (int s = 0; s < kSignals; ++s) {
      Signals::raise_when_handed_over(s, call.signals + s * kSignalPitch);
    }
  }
}
__device__ inline void pass_signals_on(const Call& call) {
  for (int l = 1; l <= call.layers; ++l) {
    for (int s = 0; s < kSignals; ++s) {
      Signals::pass_on(s, call.signals + s * kSignalPitch, l * static_cast<int>(gridDim.x));
    }
  }
}

template <typename Kind>
__global__ void __launch_bounds__(kAllThreads, 1)
    persistent_kernel(const __grid_constant__ Call call) {
  using T = typename Kind::Element;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  const Places<Kind> shared(call);
  // What is the same for all layers: where weights are, and shares.
  const auto* words = reinterpret_cast<const std::uint64_t*>(call.weights);
  for (int i = thread; i < call.layers * static_cast<int>(sizeof(LayerWeights) / 8);
       i += kAllThreads) {
    reinterpret_cast<std::uint64_t*>(shared.layers)[i] = words[i];
  }
  for (int s = 0; s < kStages; ++s) {
    const StageShape& stage = call.stages[s];
    const BlockShare share(stage);
    for (int i = thread; i < share.tasks * Kind::kRows; i += kAllThreads) {
      shared.rows[s * call.most_rows + i] = row_of<Kind>(stage, share, i);
    }
    if (warp < kWarps && lane == 0) {
      shared.shares[warp * kStages + s] = WarpShare(stage, Kind::kDepth, warp);
    }
    if (thread == 0) shared.row_counts[s] = share.tasks * Kind::kRows;
  }
  __syncthreads();
  if (warp >= kWarps) return warp == kWarps ? raise_signals(call) : pass_signals_on(call);
  const WarpShare* shares = shared.shares + warp * kStages;
  WeightRing<Kind> ring(call, shared.layers, shares,
                        shared.rings + warp * Kind::kUnits * Kind::kUnitBytes, lane);

  Residual<T> residual(call, shared.residual);
  residual.start();
  const std::int64_t position = static_cast<const std::int64_t*>(call.positions)[0];
  for (int i = thread; i < call.pairs; i += kThreads) {
    shared.turns[i] = cos_sin(position, call.inv_freq[i]);
  }
  const KeyRange range(call);
  const int items = call.heads * range.splits;  // of attention
  if (block < items) find_first_keys(call, range, block / call.heads, shared.first_keys);
  T* activations = shared.x + Places<Kind>::kZeros;
  const int padded = call.stages[kQkv].units * Kind::kDepth;  // the depth of a norm's product
  T* second = activations + padded + Places<Kind>::kZeros;
  // Down and output: the parts of the depth that this block needs, and its slots of output.
  const BlockShare down(call.stages[kDown]);
  const int first_part = down.first_part, needed_parts = down.last_part + 1 - down.first_part;
  float* output_slots = shared.slots + (down.tasks + kWarps) * Kind::kRows;
  const int part_0_rows =
      max(0, min(down.tasks, call.stages[kDown].tiles - down.first)) * Kind::kRows;
  RowEnds<T> down_ends;

  for (int l = 0; l < call.layers; ++l) {
    const LayerWeights& layer = shared.layers[l];
#pragma unroll 1  // one copy of the product's instructions
    for (int s = 0; s < kStages; ++s) {
      const StageShape& stage = call.stages[s];
      const Row* rows = shared.rows + s * call.most_rows;
      const int row_count = shared.row_counts[s];
      RowEnds<T> ends;
      if (thread < row_count) ends = load_ends<Kind>(layer, s, rows[thread].n);

      // Activations.
      if (s == kQkv) {
        const Norms norms(call, layer);  // on their way while the sums are
        if (l > 0) {
          Signals::receive(kHaveSums);
          residual.add_sums();
        }
        residual.normalise(norms, shared.partial, activations, second);
        if (block < items) {
          fetch_keys(call, layer, range, block % call.heads, block / call.heads, shared.first_keys);
        }
        if (thread < Places<Kind>::kZeros) {  // other products have overwritten the second
          shared.x[thread] = activations[padded + thread] = T{};
        }
      } else if (s == kDown) {
        if (block >= items) Signals::receive(kHaveQkv);
        for (int item = block; item < items; item += blocks) {
          attend<T>(call, layer, range, item % call.heads, item / call.heads, item == block,
                    shared.first_keys, shared.turns, shared.slots);
        }
        Signals::hand_over(kHaveAttended);
        Signals::receive(kHaveActivated);
        const int depth = stage.units * Kind::kDepth;
        const auto* from = reinterpret_cast<const uint4*>(static_cast<const T*>(call.activated) +
                                                          first_part * depth);
        for (int i = thread; 8 * i < needed_parts * depth; i += kThreads) {
          reinterpret_cast<uint4*>(activations)[i] = __ldcg(from + i);
        }
      } else if (s == kOutput) {
        Signals::receive(kHaveAttended);
        const int depth = stage.units * Kind::kDepth;
        for (int i = thread; 4 * i < needed_parts * depth; i += kThreads) {
          reinterpret_cast<uint2*>(activations)[i] =
              in_halves<T>(attended_at(call, range.splits, first_part * depth + 4 * i));
        }
      }
      Signals::sync_workers();

      // TileWeights' sums find their zeros before the activations. The sums of down stay until
      // those of output are there.
      T* from = (s == kUp ? second : activations) - Places<Kind>::kZeros;
      float* slots = s == kOutput ? output_slots : shared.slots;
      multiply_share<Kind>(ring, stage, shares[s], from, slots, lane);
      if (s == kDown) {
        if (l + 1 < call.layers) fetch_norms(call, shared.layers[l + 1], warp, lane);
        down_ends = ends;
        continue;
      }
      Signals::sync_workers();

      for (int i = thread; i < row_count; i += kThreads) {
        const Row row = rows[i];
        if (i != thread) ends = load_ends<Kind>(layer, s, row.n);
        float value = product_of<Kind>(row, ends.scale, slots);
        if (s == kOutput) {
          const Row of_down = shared.rows[kDown * call.most_rows + i];
          if (i != thread) down_ends = load_ends<Kind>(layer, kDown, row.n);
          value += product_of<Kind>(of_down, down_ends.scale, shared.slots);
          if (i < part_0_rows) value += to_f32(ends.bias) + to_f32(down_ends.bias);
          call.sums[(down.first + i / Kind::kRows) / stage.tiles * call.hidden + row.n] = value;
        } else {
          value += to_f32(ends.bias);
          if (s == kUp) value = activate_apart(call.activation, value);
          static_cast<T*>(s == kUp ? call.activated : call.qkv)[row.n] = from_f32<T>(value);
        }
      }
      Signals::hand_over(s == kQkv ? kHaveQkv : s == kUp ? kHaveActivated : kHaveSums);
      Signals::sync_workers();  // before anyone overwrites sums
    }
  }

  let_next_kernel_start();
  Signals::receive(kHaveSums);
  if (block == 0) {
    residual.add_sums();
    residual.store();
  }
  // Whoever ends last leaves zeros behind.
  if (thread == 0 && atomicAdd(call.signals + kEnded * kSignalPitch, 1) == blocks - 1) {
    for (int s = 0; s <= kEnded; ++s) call.signals[s * kSignalPitch] = 0;
  }
  wait_for_copies<0>();
}

}  // namespace tessera::cuda::decode
