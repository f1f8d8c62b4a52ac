// The arguments of the kernel of persistent.cuh: shapes, the same for all layers, and the memory of
// each layer.
#pragma once

#include <cstdint>

#include "core/drawn_ids.h"
#include "tessera/linear.h"

namespace tessera::cuda::decode {

// The four products of a layer; layer_kinds.cuh has their order. A serial layer stacks weights in
// two of them: its kQkv is q, k and v, its kUp alternates tiles of gate and up.
enum Stage : int { kQkv, kUp, kDown, kOutput, kStages };

// The weights of a layer: one for each product (in a serial layer q and gate), and the weights
// stacked onto it.
enum LayerWeight : int { kKeyWeight = kStages, kValueWeight, kUpWeight, kMostWeights };

// The warps of each multiprocessor's one block: workers that multiply, finishers that turn their
// sums into what other blocks read, and one warp that listens to other blocks
// (tile/grid_signal.cuh). Each of the four schedulers has three workers and one other warp; with 14
// workers, two schedulers would have more to issue. With more than 16 warps a thread would have 96
// registers instead of 128.
inline constexpr int kWarps = 12, kFinishingWarps = 3;
inline constexpr int kThreads = kWarps * 32, kFinishers = kFinishingWarps * 32;
inline constexpr int kAllThreads = kThreads + kFinishers + 32;
// The ring of weights of a warp: on an H200, 21 MB in flight.
inline constexpr int kRingBytesOfWarp = 160 * 1024 / kWarps;

// A kernel's arguments are limited to 32,764 bytes.
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
  int together = 1;  // neighbouring tasks that one block takes together: gate and up
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

// The place of a token's heads in the qkv product.
struct HeadPlaces {
  int first, stride;
};

// The token's row of the embedding (token_row.cuh).
struct TokenRow {
  const void* table;  // null: x holds the row
  std::int64_t rows, row_bytes;
  const void* id;
  bool is_wide;  // i64; else i32
  DrawnIds drawn;
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
  int teams;        // of query heads: heads of one key head that a block takes together
  int most_splits;  // the most blocks that divide the keys of a team
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

  void* x;  // [hidden], replaced by the result
  TokenRow token;
  const void* final_weight;  // of the norm after the last layer; null: none
  const void* final_bias;
  // Scratch in global memory.
  void* qkv;              // T [rows of qkv]
  void* activated;        // T [inner]
  float* sums;            // [parts of down and output][hidden]
  float* attended;        // [most_splits][heads][dim]
  float* softmaxes;       // [most_splits][heads][2]: largest score, sum
  std::int32_t* signals;  // zeros before and after

  int x_bytes;      // in shared memory: of a product's activations, or attention's scratch
  int slot_floats;  // in shared memory: of sums of a block's tasks
  int most_rows;    // of a block's tasks in all products of a layer

  LayerWeights weights[kMostLayers];
};
static_assert(sizeof(Call) < 32000);

// Signals (layer_kinds.cuh) have a cache line each.
inline constexpr int kSignalPitch = 32;

}  // namespace tessera::cuda::decode
