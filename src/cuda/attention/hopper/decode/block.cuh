// A block of the decode kernel for Hopper: what it has in shared memory, and the barriers by which
// the warp that fetches and those that compute hand places in it to each other. "full": the copy
// engine has filled a place. "free": everyone who reads the place has read it.
//
//   | stage 0 | stage 1 | ... |      each: 32 keys and their values
//   | q | q |                        rows of this piece and of the next
//   | results of four warps |
//   | steps before each sequence |
#pragma once

#include <cstdint>

#include "cuda/attention/hopper/decode/call.h"
#include "cuda/attention/portable/split_block.cuh"
#include "cuda/tile/hopper/mbarrier.cuh"
#include "cuda/tile/padded_rows.cuh"

namespace tessera::cuda::hopper_decode {

inline constexpr int kRows = static_cast<int>(kFewRows);
inline constexpr int kMostStages = 48;
inline constexpr int kSwizzle = 1024;  // bytes after which the copy engine's pattern repeats

// 32 rows of keys or values as the copy engine leaves them: in panels of 128 bytes,
// whose chunks it exchanges, so that eight rows read at the same column lie in different banks;
// rows of other lengths (80) one after the other, which costs two turns for a read instead of
// one.
template <int dim>
struct KeyRows {
  static constexpr int kRowBytes = dim % 64 == 0 ? 128 : 2 * dim;  // of a panel
  static constexpr int kPanels = 2 * dim / kRowBytes, kPanelBytes = kStepKeys * kRowBytes;
  static constexpr int kBytes = kPanels * kPanelBytes;

  // Where chunk `chunk` of row `row` begins.
  __device__ static int at(int row, int chunk) {
    if constexpr (kRowBytes == 128) {
      return chunk / 8 * kPanelBytes + row * 128 + (chunk ^ row) % 8 * 16;
    } else {
      return row * kRowBytes + chunk * 16;
    }
  }
};

struct Barriers {
  std::uint64_t full[kMostStages], free[kMostStages];
  std::uint64_t q_full[2], q_free[2];
};

// `heads` neighbouring key heads, whose rows lie side by side, share a block: a warp has one of
// them. Warps / heads steps are computed at the same time.
template <int dim_, int heads>
struct Block {
  static constexpr int dim = dim_, kHeads = heads, kWarps = 4;
  static constexpr int kTeams = kWarps / heads;       // each takes every kTeams-th step
  static constexpr int kThreads = 32 * (kWarps + 1);  // the last warp fetches
  static constexpr int kComputing = 32 * kWarps;
  using Rows = KeyRows<dim>;
  // Bytes of K of all heads, and of K and V.
  static constexpr int kHalf = heads * Rows::kBytes, kStage = 2 * kHalf;
  static constexpr int kHeadQueries = kRows * PaddedRows<dim>::kRowBytes;
  static constexpr int kQueries = heads * kHeadQueries;

  unsigned char *ring, *queries;
  float* results;
  float (*largest)[kRows], (*sum)[kRows];  // [warps][rows]
  Barriers* barriers;
  int* before;
  bool* last;
  int rows;

  __device__ Block(unsigned char* memory, int stages, int most_rows) : rows(most_rows) {
    const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(memory));
    ring = memory + (kSwizzle - address % kSwizzle) % kSwizzle;
    queries = ring + stages * kStage;
    results = reinterpret_cast<float*>(queries + 2 * kQueries);
    largest = reinterpret_cast<float(*)[kRows]>(results + kWarps * rows * dim);
    sum = largest + kWarps;
    barriers = reinterpret_cast<Barriers*>(sum + kWarps);
    before = reinterpret_cast<int*>(barriers + 1);
    last = reinterpret_cast<bool*>(before + kMostSequences + 1);
  }
  __host__ __device__ static constexpr int bytes(int stages, int most_rows) {
    return kSwizzle + stages * kStage + 2 * kQueries + kWarps * most_rows * dim * 4 +
           2 * kWarps * kRows * 4 + static_cast<int>(sizeof(Barriers)) + (kMostSequences + 2) * 4;
  }
  __device__ unsigned char* stage(int i) const { return ring + i * kStage; }
  __device__ float* out(int warp, int row) const { return results + (warp * rows + row) * dim; }
};

}  // namespace tessera::cuda::hopper_decode
