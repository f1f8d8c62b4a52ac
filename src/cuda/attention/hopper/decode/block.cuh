// A block of the decode kernel for Hopper: its shared memory, and the barriers with which fetching
// and computing warps hand places in it to each other. "full": the copy engine has filled a place.
// "free": all readers of the place are done.
//
//   | stage 0 | stage 1 | ... |      each: 32 keys and their values, or 64 of 8 bits
//   | s | s | ... |                  scales of 8 bits
//   | q | q |                        rows of this piece and of the next
//   | results of the warps |
//   | steps before each sequence |
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/attention/hopper/decode/call.h"
#include "cuda/attention/portable/split_block.cuh"
#include "cuda/tile/hopper/mbarrier.cuh"
#include "cuda/tile/padded_rows.cuh"

namespace tessera::cuda::hopper_decode {

inline constexpr int kMostStages = 48;
inline constexpr int kSwizzle = 1024;  // bytes after which the copy engine's pattern repeats

// Warps that compute over codes, with one head to a block and with two: a multiple of the 2 or 4
// warps of a step. Up to 10 of them, with the two that fetch, leave 168 registers for each thread;
// more leave 128.
inline constexpr int kCodeWarps[2] = {8, 8};

// 32 rows of keys or values as the copy engine writes them: in swizzled panels of 128 bytes, so
// that eight rows read at the same column lie in different banks. Rows of other lengths (D 80)
// follow each other unswizzled; a read then takes two passes instead of one.
template <int dim>
struct KeyRows {
  static constexpr int kRowBytes = dim % 64 == 0 ? 128 : 2 * dim;  // of a panel
  static constexpr int kPanels = 2 * dim / kRowBytes, kPanelBytes = kWarpKeys * kRowBytes;
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

// 64 rows of codes. A row holds all heads of a block. Rows of 128 bytes are swizzled as above; at D
// 80 two heads make rows of 160 bytes.
template <int dim, int heads>
struct CodeRows {
  static constexpr int kRowBytes = heads * dim;
  static constexpr int kBytes = decode_step_keys(true) * dim;  // of a head

  // Where byte `byte` of row `row` lies. A single read does not cross a 16-byte chunk. Eight rows
  // further on, it lies eight times kRowBytes further on.
  __device__ static int at(int row, int byte) {
    return row * kRowBytes + (kRowBytes == 128 ? byte ^ (row & 7) * 16 : byte);
  }
};

struct Barriers {
  std::uint64_t full[kMostStages], free[kMostStages];
  std::uint64_t q_full[2], q_free[2];
};

// `heads` neighbouring key heads, whose rows are adjacent, share a block. A warp has one of the
// heads and a part of each step's keys. The warps of a step are a team; all teams compute at the
// same time. Codes take more instructions per byte than 16-bit numbers, so there are twice as many
// warps. A head has at most `most_rows` rows.
template <int dim_, int heads, bool codes = false, int most_rows = static_cast<int>(kFewRows)>
struct Block {
  static constexpr int dim = dim_, kHeads = heads, kRows = most_rows;
  static constexpr int kWarps = codes ? kCodeWarps[heads - 1] : 4;
  static constexpr bool kCodes = codes;
  static constexpr int kStepKeys = decode_step_keys(codes), kParts = kStepKeys / kWarpKeys;
  static constexpr int kTeamWarps = heads * kParts;
  static constexpr int kTeams = kWarps / kTeamWarps;  // each takes every kTeams-th step
  static constexpr int kComputing = 32 * kWarps;
  static constexpr int kThreads =
      kComputing + (codes ? 64 : 32);  // the last one or two warps fetch
  using Rows = std::conditional_t<codes, CodeRows<dim, heads>, KeyRows<dim>>;
  // Bytes of K of all heads, and of K and V.
  static constexpr int kHalf = heads * Rows::kBytes, kStage = 2 * kHalf;
  static constexpr int kScales = codes ? 2 * heads * kStepKeys : 0;  // of a stage
  static constexpr int kHeadQueries = kRows * PaddedRows<dim>::kRowBytes;
  static constexpr int kQueries = heads * kHeadQueries;

  unsigned char *ring, *queries;
  float *all_scales, *results;
  float (*largest)[kRows], (*sum)[kRows];  // [warps][rows]
  Barriers* barriers;
  int* before;
  bool* last;
  int rows;

  __device__ Block(unsigned char* memory, int stages, int rows_of_head) : rows(rows_of_head) {
    const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(memory));
    ring = memory + (kSwizzle - address % kSwizzle) % kSwizzle;
    all_scales = reinterpret_cast<float*>(ring + stages * kStage);
    queries = reinterpret_cast<unsigned char*>(all_scales + stages * kScales);
    results = reinterpret_cast<float*>(queries + 2 * kQueries);
    largest = reinterpret_cast<float(*)[kRows]>(results + kWarps * rows * dim);
    sum = largest + kWarps;
    barriers = reinterpret_cast<Barriers*>(sum + kWarps);
    before = reinterpret_cast<int*>(barriers + 1);
    last = reinterpret_cast<bool*>(before + kMostSequences + 1);
  }
  __host__ __device__ static constexpr int bytes(int stages, int rows) {
    return kSwizzle + stages * (kStage + 4 * kScales) + 2 * kQueries + kWarps * rows * dim * 4 +
           2 * kWarps * kRows * 4 + static_cast<int>(sizeof(Barriers)) + (kMostSequences + 2) * 4;
  }
  __device__ unsigned char* stage(int i) const { return ring + i * kStage; }
  // Of stage i: [keys or values][heads][kStepKeys].
  __device__ float* scales(int i) const { return all_scales + i * kScales; }
  __device__ float* out(int warp, int row) const { return results + (warp * rows + row) * dim; }
};

}  // namespace tessera::cuda::hopper_decode
