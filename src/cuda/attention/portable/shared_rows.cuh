// Loads rows of q, k and v into shared memory, 16 bytes at a time.
//
// Rows that are aligned to 16 bytes and a multiple of 8 elements long are copied by cp.async; all
// others element by element, through registers. Elements beyond the head dim and rows that do not
// exist are zeros, which add nothing to a product. Keys of a page that is not in the pool become
// NaN afterwards (lose_row). The thread that found such a key does that, at no cost to the others.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/attention/call.h"
#include "cuda/attention/portable/small_sequence.cuh"
#include "cuda/attention/portable/tensor_core.h"
#include "cuda/rotary/rope.cuh"
#include "cuda/tile/cp_async.cuh"
#include "cuda/tile/element.cuh"
#include "cuda/tile/padded_rows.cuh"

namespace tessera::cuda {

// Where a row lies, in units from the first row of its head (KeyUnits), or one of these values.
inline constexpr std::uint32_t kElsewhere = 0xfffffffdu;  // not copied: loaded another way
inline constexpr std::uint32_t kLostRow = 0xfffffffeu;    // of a page that is not in the pool
inline constexpr std::uint32_t kNoRow = 0xffffffffu;      // beyond the last key

struct KeyRow {
  std::uint32_t k, v;
};

// The slot of key j among those of its sequence's pages.
__device__ inline std::uint32_t page_slot(const SmallSequence& s, int j) {
  return static_cast<std::uint32_t>(j < s.hole_begin ? j : j + s.hole_size);
}

// The batch or page of key j, and its row in it. page_at(i) is entry i of the sequence's page
// table.
struct KeyPlace {
  std::uint32_t batch, row;
  bool lost;
};
template <typename PageAt>
__device__ KeyPlace find_key_place(const AttentionCall& call, const KeyUnits& units,
                                   const SmallSequence& s, int j, PageAt page_at) {
  if (call.page_table == nullptr) {
    return {static_cast<std::uint32_t>(s.k_batch),
            static_cast<std::uint32_t>(s.k_begin) + static_cast<std::uint32_t>(j), false};
  }
  const std::uint32_t slot = page_slot(s, j), of_table = slot / units.page_size;
  const std::uint32_t page = page_at(of_table);
  return {page, slot - of_table * units.page_size,
          page >= static_cast<std::uint32_t>(call.pool_pages)};
}
__device__ inline KeyPlace find_key_place(const AttentionCall& call, const KeyUnits& units,
                                          const SmallSequence& s, int j) {
  return find_key_place(call, units, s, j, [&](std::uint32_t i) {
    return static_cast<std::uint32_t>(call.page_table[s.index * call.table_stride + i]);
  });
}

// Where key j and its value lie, if there is such a key.
template <typename FindPlace>
__device__ KeyRow find_key_row(const KeyUnits& units, const SmallSequence& s, int j,
                               FindPlace find_place) {
  if (j >= s.n_k) return {kNoRow, kNoRow};
  const KeyPlace at = find_place(j);
  if (at.lost) return {kLostRow, kLostRow};
  return {at.batch * units.k_batch + at.row * units.k_row,
          at.batch * units.v_batch + at.row * units.v_row};
}

// Where the keys and values of a tile lie. Each row is looked up once, not by every thread that
// copies a part of it.
template <int keys>
struct KeyRowTable {
  std::uint32_t k[keys], v[keys];

  // Thread t finds row t; other threads do nothing. True if the row is lost.
  __device__ bool find(const AttentionCall& call, const KeyUnits& units, const SmallSequence& s,
                       int k0) {
    const int row = static_cast<int>(threadIdx.x);
    if (row >= keys) return false;
    const KeyRow found =
        find_key_row(units, s, k0 + row, [&](int j) { return find_key_place(call, units, s, j); });
    k[row] = found.k;
    v[row] = found.v;
    return found.k == kLostRow;
  }
};

// Sets row `row` of the keys to NaN, and thereby the scores of all queries that see it.
template <int dim>
__device__ void lose_row(unsigned char* keys, int row) {
  for (int chunk = 0; chunk < dim / 8; ++chunk) {
    *reinterpret_cast<uint4*>(keys + PaddedRows<dim>::at(row, chunk)) =
        make_uint4(~0u, ~0u, ~0u, ~0u);
  }
}

// Eight elements from `from` on. Only the first n exist.
template <typename T>
__device__ uint4 eight_elements(const T* from, int n) {
  std::uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t low = 2 * i < n ? from[2 * i].bits : 0u;
    const std::uint32_t high = 2 * i + 1 < n ? from[2 * i + 1].bits : 0u;
    pairs[i] = low | high << 16;
  }
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

// `threads` threads copy `rows` rows. Each has one chunk of every kAtOnce-th row, so that all its
// addresses follow from one. Places gives a row's place in shared memory.
template <int dim, int rows, int threads, typename Places = PaddedRows<dim>>
struct RowCopy {
  using Rows = Places;
  static constexpr int kAtOnce = threads / Rows::kChunks;  // rows
  static constexpr int kTurns = (rows + kAtOnce - 1) / kAtOnce;

  int row, chunk, left;  // left: elements of the row from the chunk on

  __device__ RowCopy(int thread, int actual_dim)
      : row(thread / Rows::kChunks), chunk(thread % Rows::kChunks), left(actual_dim - 8 * chunk) {}

  // to [rows, dim] = the rows that row_at(r) names, relative to base. Each thread first looks up
  // all its rows, then starts all copies. Does not close the copy group.
  template <typename T, typename RowAt>
  __device__ void by_vectors(unsigned char* to, const T* base, RowAt row_at) const {
    std::uint32_t units[kTurns];
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) units[turn] = row_at(inside(turn) ? place(turn) : 0);
    unsigned char* at = to + Rows::at(row, chunk);
    const auto* from = reinterpret_cast<const unsigned char*>(base) + 16 * chunk;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      if (!inside(turn) || units[turn] == kElsewhere) continue;
      const bool there = units[turn] < kLostRow && left > 0;
      copy_async(at + turn * kAtOnce * Rows::kRowBytes, from + std::uint64_t{units[turn]} * 16,
                 there);
    }
  }
  // The same for consecutive rows, `stride` units apart, that all exist.
  template <typename T>
  __device__ void neighbours(unsigned char* to, const T* base, std::uint32_t first,
                             std::uint32_t stride) const {
    const std::uint32_t start = first + static_cast<std::uint32_t>(row) * stride;
    const auto* from = reinterpret_cast<const unsigned char*>(base) +
                       (std::uint64_t{start} + static_cast<std::uint32_t>(chunk)) * 16;
    unsigned char* at = to + Rows::at(row, chunk);
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      if (inside(turn)) copy_async(at + turn * kAtOnce * Rows::kRowBytes, from, left > 0);
      from += std::uint64_t{stride} * (16 * kAtOnce);
    }
  }
  template <typename T, typename RowAt>
  __device__ void by_elements(unsigned char* to, const T* base, RowAt row_at) const {
#pragma unroll 1
    for (int turn = 0; turn < kTurns; ++turn) {
      const std::uint32_t units = row_at(inside(turn) ? place(turn) : 0);
      if (!inside(turn)) continue;
      const bool there = units < kLostRow && left > 0;
      *reinterpret_cast<uint4*>(to + Rows::at(place(turn), chunk)) =
          eight_elements(base + (there ? units + 8u * chunk : 0u), there ? left : 0);
    }
  }
  template <typename T, typename RowAt>
  __device__ void copy(unsigned char* to, const T* base, bool vectors, RowAt row_at) const {
    if (vectors) {
      by_vectors(to, base, row_at);
    } else {
      by_elements(to, base, row_at);
    }
  }

 private:
  __device__ int place(int turn) const { return row + turn * kAtOnce; }
  __device__ bool inside(int turn) const {
    return (threads % Rows::kChunks == 0 || row < kAtOnce) &&
           (rows % kAtOnce == 0 || place(turn) < rows);
  }
};

// to [rows, dim] = query rows; row_of(r) is null for a row that does not exist. Each row is loaded
// once, so this code need not save instructions.
template <int dim, int rows, int threads, typename T, typename RowOf>
__device__ void load_queries(unsigned char* to, int actual_dim, bool vectors, RowOf row_of) {
  using Rows = PaddedRows<dim>;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < rows * Rows::kChunks; i += threads) {
    const int row = i / Rows::kChunks, chunk = i % Rows::kChunks, left = actual_dim - 8 * chunk;
    const T* from = row_of(row);
    const bool there = from != nullptr && left > 0;
    unsigned char* at = to + Rows::at(row, chunk);
    if (vectors) {
      copy_async(at, there ? from + 8 * chunk : from, there);
    } else {
      *reinterpret_cast<uint4*>(at) =
          eight_elements(there ? from + 8 * chunk : from, there ? left : 0);
    }
  }
}

// Rotates key r of `rows` keys in shared memory by its position k0 + r. A thread has one pair of
// elements and a run of keys. It computes the rotation of the first key and goes from key to key by
// the rotation of one position; over at most 64 steps that is off by 64 roundings of f32. Thread
// `thread` of `threads` calls it.
template <int dim, int rows, typename T>
__device__ void rotate_keys(const AttentionCall& call, unsigned char* keys, int k0, int thread,
                            int threads) {
  using Rows = PaddedRows<dim>;
  const auto at = [&](int row, int d) {
    return reinterpret_cast<T*>(keys + Rows::at(row, d / 8)) + d % 8;
  };
  const int pairs = static_cast<int>(call.pairs);
  if (pairs == 0) return;
  const int runs = std::max(1, threads / pairs);  // of keys, as many as there are threads for
  const int length = (rows + runs - 1) / runs;
  for (int item = thread; item < runs * pairs; item += threads) {
    const int pair = item % pairs, begin = item / pairs * length;
    const int end = std::min(rows, begin + length);
    const int first = call.half_split ? pair : 2 * pair;
    const int second = call.half_split ? pair + pairs : 2 * pair + 1;
    const CosSin step = cos_sin(1, call.inv_freq[pair]);
    CosSin rotation = cos_sin(k0 + begin, call.inv_freq[pair]);
    for (int r = begin; r < end; ++r) {
      const RotatedPair pair_out = rotated(to_f32(*at(r, first)), to_f32(*at(r, second)), rotation);
      *at(r, first) = from_f32<T>(pair_out.first);
      *at(r, second) = from_f32<T>(pair_out.second);
      const RotatedPair next = rotated(rotation.cos, rotation.sin, step);
      rotation = {next.first, next.second};
    }
  }
}

}  // namespace tessera::cuda
