// Loads 8-bit keys and values into shared memory, where they become the 16-bit rows that the tensor
// core kernels read.
//
//   global   | codes of a row, 1 byte each |
//               | cp.async, 16 bytes at a time: no waiting
//   shared   | codes                       |   free until then       |
//               | registers: each thread reads its codes, all wait, each writes twice as much
//   shared   | 16-bit numbers: codes times a power of two (tile/codes.cuh)        | pad |
//
// Rows that are not made of whole 16-byte chunks go straight through registers, as 16-bit rows do
// (shared_rows.cuh).
#pragma once

#include <cstdint>

#include "cuda/attention/portable/shared_rows.cuh"
#include "cuda/tile/codes.cuh"

namespace tessera::cuda {

// The factors for a key's scores and weights.
struct KeyFactors {
  float k = 0.f, v = 0.f;
};

// The factors of key j; 0 beyond the last key. A row of a page that is not in the pool becomes NaN
// elsewhere (lose_row).
__device__ inline KeyFactors find_key_factors(const AttentionCall& call, const KeyUnits& units,
                                              const SmallSequence& s, int kv_head, int j) {
  if (j >= s.n_k) return {};
  const KeyPlace place = find_key_place(call, units, s, j);
  if (place.lost) return {1.f, 1.f};
  const float unit = inverse_unit(call.stored);
  return {unit * call.k_scales.at(place.batch, place.row, kv_head),
          unit * call.v_scales.at(place.batch, place.row, kv_head)};
}

// `threads` threads load `rows` rows of codes, which become rows of T.
template <typename T, int dim, int rows, int threads>
struct CodedRows {
  using Rows = PaddedRows<dim>;
  static constexpr int kChunks = dim / 16;  // of 16 codes
  static constexpr int kTurns = (rows * kChunks + threads - 1) / threads;

  int thread, actual_dim;
  DType stored;
  bool vectors;

  // Starts the copies of the rows that row_at(r) names, relative to `base`. Does not close the copy
  // group.
  template <typename RowAt>
  __device__ void copy(unsigned char* to, const void* base, RowAt row_at) const {
    const auto* codes = static_cast<const unsigned char*>(base);
#pragma unroll 1
    for (int turn = 0; turn < kTurns; ++turn) {
      const int item = thread + turn * threads, chunk = item % kChunks;
      const int row = item / kChunks;
      const std::uint32_t units = row_at(row < rows ? row : 0);  // all lanes call it
      if (row >= rows) continue;
      const int left = actual_dim - 16 * chunk;
      const bool there = units < kLostRow && left > 0;
      const std::uint64_t bytes = std::uint64_t{units} * (vectors ? 16u : 1u);
      const unsigned char* from = there ? codes + bytes + 16 * chunk : codes;
      if (vectors) {
        copy_async(to + Rows::at(row, chunk), from, there);
      } else {
        write(to, row, chunk, by_elements(from, there ? left : 0));
      }
    }
  }
  // Decodes the copied codes in place. All threads call it; wait() is their barrier.
  template <typename Wait>
  __device__ void expand(unsigned char* to, Wait wait) const {
    if (!vectors) return;
    uint4 codes[kTurns] = {};
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int item = thread + turn * threads;
      if (item >= rows * kChunks) continue;
      codes[turn] = *reinterpret_cast<const uint4*>(to + Rows::at(item / kChunks, item % kChunks));
    }
    wait();
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int item = thread + turn * threads;
      if (item < rows * kChunks) write(to, item / kChunks, item % kChunks, codes[turn]);
    }
    wait();
  }

 private:
  // Sixteen codes from `from` on. Only the first n exist.
  __device__ static uint4 by_elements(const unsigned char* from, int n) {
    std::uint32_t words[4] = {};
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if (i < n) words[i / 4] |= std::uint32_t{from[i]} << (8 * (i % 4));
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
  }
  __device__ void write(unsigned char* to, int row, int chunk, const uint4& codes) const {
    auto* at = reinterpret_cast<uint4*>(to + Rows::at(row, 2 * chunk));
    at[0] = eight_in_units<T>(codes.x, codes.y, stored);
    at[1] = eight_in_units<T>(codes.z, codes.w, stored);
  }
};

}  // namespace tessera::cuda
