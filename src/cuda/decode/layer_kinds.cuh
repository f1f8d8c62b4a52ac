// The kinds of layers that the persistent kernel runs: the order of their products, the signals
// between blocks, and which weights make up a product. Signals are listed in the order in which a
// block raises them.
#pragma once

#include "cuda/decode/call.h"
#include "cuda/tile/grid_signal.cuh"

namespace tessera::cuda::decode {

using Signals = GridSignals<kThreads, kFinishers>;

// A tile of a product, as a tile of one of the layer's weights.
struct Piece {
  int weight, tile;
};

// GPT-NeoX: x + output(attention(qkv(norm1 x))) + down(activation(up(norm2 x)))
struct ParallelLayer {
  static constexpr bool kSerial = false;
  enum Signal : int { kHaveQkv, kHaveActivated, kHaveAttended, kHaveSums, kSignals };
  static constexpr int kAttendsBefore = kDown;  // the product before which attention runs
  static constexpr int kNormVectors = 4;        // weights and biases
  // The most vectors of eight numbers of the residual stream that a thread has.
  static constexpr int kVectors = 1;
  // Heads whose queries a block takes together, and keys in flight to half a warp. A fifth key
  // would need too many registers.
  static constexpr int kQueries = 1, kKeysAtOnce = 4;
  // With fewer keys than this, a split does not pay for its merge.
  static constexpr int kFewestKeys = 96;

  __device__ static int stage(int i) { return i; }
  // The signal that a block raises after a product.
  __device__ static int signal_of(int stage) {
    return stage == kQkv ? kHaveQkv : stage == kUp ? kHaveActivated : kHaveSums;
  }
  __device__ static Piece piece(const Call& /*call*/, int stage, int tile) { return {stage, tile}; }
};

// Llama: y = x + output(attention(qkv(norm1 x))); y + down(activation(gate(norm2 y)) * up(norm2 y))
struct SerialLayer {
  static constexpr bool kSerial = true;
  enum Signal : int { kHaveQkv, kHaveAttended, kHaveOutput, kHaveActivated, kHaveSums, kSignals };
  static constexpr int kAttendsBefore = kOutput;
  static constexpr int kNormVectors = 2;
  static constexpr int kVectors = 2;
  // More queries would read keys less often, but keep fewer blocks busy. With two of the four
  // queries that usually share a key, keys are read twice, the second time from the L2 cache. There
  // are no registers for a fourth key.
  static constexpr int kQueries = 2, kKeysAtOnce = 3, kFewestKeys = 64;

  __device__ static int stage(int i) { return i == 1 ? kOutput : i > 1 ? i - 1 : kQkv; }
  __device__ static int signal_of(int stage) {
    return stage == kQkv      ? kHaveQkv
           : stage == kOutput ? kHaveOutput
           : stage == kUp     ? kHaveActivated
                              : kHaveSums;
  }
  __device__ static Piece piece(const Call& call, int stage, int tile) {
    if (stage == kUp) return {tile % 2 == 0 ? int{kUp} : int{kUpWeight}, tile / 2};
    if (stage != kQkv || tile < call.q_tiles) return {stage, tile};
    const int of_keys = tile - call.q_tiles, of_values = of_keys - call.kv_tiles;
    if (of_values < 0) return {kKeyWeight, of_keys};
    return {kValueWeight, of_values};
  }
};

}  // namespace tessera::cuda::decode
