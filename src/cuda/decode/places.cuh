// The shared memory of a block of the persistent kernel. The parts that are the same for all layers
// are filled in before the first layer.
#pragma once

#include <cstdint>

#include "cuda/decode/attention.cuh"
#include "cuda/decode/call.h"
#include "cuda/decode/layer_kinds.cuh"
#include "cuda/decode/residual.cuh"
#include "cuda/decode/rows.cuh"
#include "cuda/decode/weights.cuh"
#include "cuda/runtime/dynamic_shared.cuh"

namespace tessera::cuda::decode {

// The layout, in this order.
template <typename Kind>
struct Places {
  using T = typename Kind::Element;
  static constexpr int kZeros = Kind::kZeros;
  static constexpr int kRingBytes = kWarps * Kind::kUnits * Kind::kUnitBytes;

  char* rings;                // [kWarps][kUnits][unit]
  T* x;                       // zeros, then activations of a product, or attention's scratch
  float* slots;               // sums
  Eight* residual;            // [hidden / 8]
  float2* partial;            // [kWarps], of a norm
  CosSin* rotations;          // [pairs]
  Item* first_item;           // the block's first item of attention
  std::uint64_t* first_keys;  // [kFirstKeys]: where the first keys of that item are
  Row* rows;                  // of all products
  WarpShare* shares;          // [kWarps][kStages]
  BlockStage* stages;         // [kStages]
  LayerWeights* layers;       // [layers]: reading a kernel's arguments may wait for memory

  __device__ explicit Places(const Call& call) { place(call, dynamic_shared<char>()); }
  static int bytes(const Call& call) {
    Places places;
    return static_cast<int>(places.place(call, nullptr) - static_cast<char*>(nullptr));
  }
  __device__ T* activations() const { return x + kZeros; }
  __device__ float* slots_of(int stage) const { return slots + stages[stage].first_slot; }

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
    take(rotations, call.pairs);
    take(first_item, 1);
    take(first_keys, kFirstKeys);
    take(rows, call.most_rows);
    take(shares, kWarps * kStages);
    take(stages, kStages);
    take(layers, call.layers);
    return from;
  }
};

// ---- before the first layer ---------------------------------------------------------------------

// Fills in what is the same for all layers. Every token waits for this, so it is divided: four
// warps each take the rows and shares of one product, and all copy the layers' pointers. All
// threads call it, then sync.
template <typename Kind, typename Layer>
__device__ void share_out(const Call& call, const Places<Kind>& shared) {
  constexpr int kAllWarps = kAllThreads / 32, kOfStage = kAllThreads / kStages;
  static_assert(kWarps <= kOfStage);
  const int thread = static_cast<int>(threadIdx.x), s = thread / kOfStage;
  // In a parallel layer, qkv's sums are still being read while up's arrive, and down's sums are
  // added to output's.
  const bool behind = !Layer::kSerial && (s == kUp || s == kOutput);
  int first_row = 0, slots_before = 0;
  for (int before = 0; before < s; ++before) {
    const int rows = BlockShare(call.stages[before]).tasks * Kind::kRows;
    first_row += rows;
    slots_before = rows + kWarps * Kind::kRows;
  }
  const StageShape& stage = call.stages[s];
  const BlockShare share(stage);
  const int rows = share.tasks * Kind::kRows, i = thread % kOfStage;
  for (int row = i; row < rows; row += kOfStage) {
    shared.rows[first_row + row] = row_of<Kind, Layer>(call, s, share, row);
  }
  if (i < kWarps) shared.shares[i * kStages + s] = WarpShare(stage, share, Kind::kDepth, i);
  if (i == kWarps) {
    shared.stages[s] = {.first_row = first_row,
                        .rows = rows / stage.together,
                        .first_slot = behind ? slots_before : 0,
                        .first_part = share.first_part,
                        .parts = share.last_part + 1 - share.first_part};
  }
  // A warp reads a layer's pointers one by one: lanes that read different arguments would wait for
  // each other.
  constexpr int kWords = sizeof(LayerWeights) / 8;
  for (int l = thread / 32; l < call.layers; l += kAllWarps) {
    const auto* from = reinterpret_cast<const std::uint64_t*>(&call.weights[l]);
    std::uint64_t words[kWords];
#pragma unroll
    for (int w = 0; w < kWords; ++w) words[w] = from[w];
    if (thread % 32 == 0) {
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        reinterpret_cast<std::uint64_t*>(shared.layers + l)[w] = words[w];
      }
    }
  }
}

// The same for what depends on the token, by the warps that do not multiply.
template <typename Kind, typename Layer>
__device__ void prepare_attention(const Call& call, const Places<Kind>& shared) {
  constexpr int kThreadsHere = kAllThreads - kThreads;
  const int thread = static_cast<int>(threadIdx.x) - kThreads;
  if (thread < 0) return;
  const std::int64_t position = static_cast<const std::int64_t*>(call.positions)[0];
  const KeyRange range(call, Layer::kFewestKeys);
  const int block = static_cast<int>(blockIdx.x);
  if (block < call.teams * range.splits) {
    const Item item = item_of<Layer>(call, range, block);
    if (thread == 0) *shared.first_item = item;
    find_first_keys(call, item, thread, kThreadsHere, shared.first_keys);
  }
  for (int i = thread; i < call.pairs; i += kThreadsHere) {
    shared.rotations[i] = cos_sin(position, call.inv_freq[i]);
  }
}

}  // namespace tessera::cuda::decode
