// The arguments of the kernel of persistent.cuh: shapes, the same for all layers, and the memory of
// each layer.
#pragma once

#include <cstdint>

#include "tessera/linear.h"

namespace tessera::cuda::decode {

// The four products of a layer; layer_kinds.cuh has their order. A serial layer stacks weights in
// two of them: its kQkv is q, k and v, its kUp has tiles of gate and up in turn.
enum Stage : int { kQkv, kUp, kDown, kOutput, kStages };

// The weights of a layer: one for each product (of a serial layer q and gate), and what is stacked
// onto it.
enum LayerWeight : int { kKeyWeight = kStages, kValueWeight, kUpWeight, kMostWeights };

// Of each multiprocessor's one block: warps that multiply, warps that make of their sums what other
// blocks read, and one that listens to these (tile/grid_signal.cuh). Three, and one of the others,
// to each of the four schedulers: with 14, two of these would have more to issue. With more than 16
// warps a thread would have 96 registers instead of 128.
inline constexpr int kWarps = 12, kFinishingWarps = 3;
inline constexpr int kThreads = kWarps * 32, kFinishers = kFinishingWarps * 32;
inline constexpr int kAllThreads = kThreads + kFinishers + 32;
// The ring of weights of a warp: of an H200 that is 21 MB on their way.
inline constexpr int kRingBytesOfWarp = 160 * 1024 / kWarps;

// A kernel's arguments have 32,764 bytes.
inline constexpr int kMostLayers = 112;

inline constexpr int kMostParts = 4;

// A product is cut into tasks: a tile (rows of the weight that are read together) and one of
// `parts` equal parts of the depth. The tasks of a part are neighbours.
//
//   depth   |  part 0  |  part 1  |
//   tile 0  |  task 0  |  task 3  |     A block takes neighbouring tasks, so it needs the
//   tile 1  |  task 1  |  task 4  |     activations of few parts.
//   tile 2  |  task 2  |  task 5  |
//
// A task is read in units (weights.cuh).
struct StageShape {
  int tiles;
  int parts;
  int units;         // of a task
  int together = 1;  // neighbouring tasks that a block takes both or none of: gate and up
};

struct LayerWeights {
  const void* codes[kMostWeights];
  const void* scales[kMostWeights];
  const float* row_scales[kMostWeights];
  const void* bias[kMostWeights];  // of the model's dtype, or null
  const void* norm_weight[2];
  const void* norm_bias[2];
  void* keys;  // pages of the cache
  void* values;
};

// Where a token's heads are in the product of qkv.
struct HeadPlaces {
  int first, stride;
};

struct Call {
  StageShape stages[kStages];
  int layers, hidden, inner;
  float eps;
  Activation activation;

  int q_tiles, kv_tiles;  // serial: of q, and of k and v each

  // Attention.
  int heads, dim;
  int group;        // query heads to a key head
  int teams;        // of query heads: those of a key head whose queries a block takes together
  int most_splits;  // blocks that share the keys of a team, at most
  HeadPlaces q, k, v;
  float scale_log2;       // of scores, for powers of two
  const float* inv_freq;  // [pairs]
  int pairs;              // of elements that are rotated
  bool half_split;
  const void* positions;        // i64 [1]
  const std::int32_t* slots;    // [1]
  const std::int32_t* table;    // [width]
  const std::int32_t* lengths;  // [1]
  const std::int32_t* holes;    // [2], or null
  int width, page_log2;         // pages of the table, log2 of the rows of one
  std::int64_t pool_pages;
  std::uint32_t page_bytes, row_bytes, head_bytes;  // of keys and values
  int window;  // keys that the token sees, its own included; 0: all

  void* x;  // [hidden], replaced by the output of the last layer
  // Scratch in global memory.
  void* qkv;              // T [rows of qkv]
  void* activated;        // T [inner]
  float* sums;            // [parts of down and output][hidden]
  float* attended;        // [most_splits][heads][dim]
  float* softmaxes;       // [most_splits][heads][2]: largest score, sum
  std::int32_t* signals;  // zeros, and zeros again afterwards

  int x_bytes;      // in shared memory: of activations on their way into a product, or attention's
  int slot_floats;  // in shared memory: of sums of a block's tasks
  int most_rows;    // of a block's tasks in all products of a layer

  LayerWeights weights[kMostLayers];
};
static_assert(sizeof(Call) < 32000);

// Signals (layer_kinds.cuh) have a cache line each.
inline constexpr int kSignalPitch = 32;

}  // namespace tessera::cuda::decode
