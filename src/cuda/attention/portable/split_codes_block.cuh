// A block of the split kernel for codes (split_codes.cuh): where the codes of a step lie in shared
// memory, which ones a lane reads, and how they are loaded.
#pragma once

#include <cstdint>

#include "cuda/attention/call.h"
#include "cuda/attention/portable/fragments.cuh"
#include "cuda/attention/portable/shared_rows.cuh"
#include "cuda/attention/portable/split_block.cuh"
#include "cuda/attention/portable/tensor_core.h"
#include "cuda/tile/cp_async_word.cuh"
#include "cuda/tile/mma.cuh"

namespace tessera::cuda::split {

// Reads `bytes` bytes that are aligned to `bytes`.
template <int bytes>
__device__ void read_words(const unsigned char* from, std::uint32_t* to) {
  if constexpr (bytes == 16) {
    const uint4 x = *reinterpret_cast<const uint4*>(from);
    to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
  } else if constexpr (bytes == 8) {
    const uint2 x = *reinterpret_cast<const uint2*>(from);
    to[0] = x.x, to[1] = x.y;
  } else if constexpr (bytes == 4) {
    to[0] = *reinterpret_cast<const std::uint32_t*>(from);
  } else {
    static_assert(bytes == 2);
    to[0] = *reinterpret_cast<const std::uint16_t*>(from);
  }
}

// The codes of 16 keys in shared memory. Eight keys are read at a time, each by four lanes. With
// this row stride they all lie in different banks.
template <int dim>
struct KeyCodes {
  static constexpr int kChunks = dim / 16, kRowBytes = dim == 128 ? 144 : dim == 64 ? 64 : 96;
  static constexpr int kBytes = dim % 64 == 0 ? 16 : 8;  // of a vector
  static constexpr int kVectors = dim / (4 * kBytes), kWhole = kVectors * 4 * kBytes;
  static constexpr int kWords = dim / 16;  // of a lane: one for each step along the head dim

  __device__ static int at(int row, int chunk) { return row * kRowBytes + 16 * chunk; }
  // Where vector v of lane t begins.
  __device__ static int vector(int v, int t) {
    return kBytes * (kBytes == 16 ? t * kVectors + v : 4 * v + t);
  }
  // The first of the four elements that lane t has in step s.
  __device__ static int element(int s, int t) {
    constexpr int kOfVector = kBytes / 4;
    const int v = s / kOfVector;
    return v < kVectors ? vector(v, t) + s % kOfVector * 4 : kWhole + 4 * t;
  }
  __device__ static void read(const unsigned char* codes, int key, std::uint32_t (&words)[kWords]) {
    const int t = lane_of_warp() % 4;
    const unsigned char* row = codes + key * kRowBytes;
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
      read_words<kBytes>(row + vector(v, t), words + v * kBytes / 4);
    if constexpr (kWhole < dim) read_words<4>(row + kWhole + 4 * t, words + kWords - 1);
  }
};

// The codes of 16 values in shared memory. Every other value is read at a time, at up to eight
// places. A row is an odd number of 16-byte chunks, so the banks differ.
template <int dim>
struct ValueCodes {
  static constexpr int kChunks = dim / 16, kRowBytes = 16 * (kChunks | 1);
  // A lane has kBytes of a value's first kWhole bytes, and kRest of the bytes after them.
  static constexpr int kBytes = dim == 128 ? 16 : 8, kWhole = 8 * kBytes;
  static constexpr int kRest = (dim - kWhole) / 8;

  __device__ static int at(int row, int chunk) { return row * kRowBytes + 16 * chunk; }
  // The element of out in this column of this 16 x 8 piece.
  __device__ static int element(int piece, int column) {
    return piece < kBytes ? kBytes * column + piece : kWhole + kRest * column + piece - kBytes;
  }
};

// Step s of the queries in shared memory as an operand of mma.sync, in the order of KeyCodes.
template <int dim, typename Pairs>
__device__ void load_in_code_order(const unsigned char* q, int s, std::uint32_t (&to)[4]) {
  const int lane = lane_of_warp();
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    std::uint32_t pairs[2];
    read_words<8>(q + (lane / 4 + 8 * side) * PaddedRows<dim>::kRowBytes +
                      2 * KeyCodes<dim>::element(s, lane % 4),
                  pairs);
    Pairs::order(pairs[0], pairs[1], to[side], to[2 + side]);
  }
}

// sums += weights times the columns in these bytes of the lane's four values: the pieces from
// `piece` on, in the order of ValueCodes.
template <typename T, typename Pairs, int bytes, int piece, int words_of_value, int pieces>
__device__ void add_code_columns(const std::uint32_t (&words)[4][words_of_value],
                                 const std::uint32_t (&weights)[4], float (&sums)[pieces][4]) {
  const auto add = [&](int at, std::uint32_t low_keys, std::uint32_t high_keys) {
    std::uint32_t low[2], high[2];
    Pairs::decode(low_keys, low);
    Pairs::decode(high_keys, high);
    mma_16x8x16(sums[at], weights, {low[0], high[0]}, T());
    mma_16x8x16(sums[at + 1], weights, {low[1], high[1]}, T());
  };
#pragma unroll
  for (int w = 0; w < words_of_value; ++w) {
    add(piece + 4 * w, Pairs::join_low(words[0][w], words[1][w]),
        Pairs::join_low(words[2][w], words[3][w]));
    if constexpr (bytes >= 4) {
      add(piece + 4 * w + 2, Pairs::join_high(words[0][w], words[1][w]),
          Pairs::join_high(words[2][w], words[3][w]));
    }
  }
}

// One step of one warp.
template <int dim>
struct alignas(16) CodeStage {
  unsigned char k[kStepKeys * KeyCodes<dim>::kRowBytes];
  unsigned char v[kStepKeys * ValueCodes<dim>::kRowBytes];
  float scales[2 * kStepKeys];  // of keys, then of values
};

// Starts the copies of steps.
template <int dim>
struct CodeLoader {
  const QueryRows& rows;
  const KeyUnits& units;
  const PageList& list;
  const unsigned char *k, *v;  // the head's first row
  // A lane loads one scale of a step: lanes below 16 the scale of a key, the others of a value.
  const float* scales;
  std::int64_t scale_batch;
  // Pairs of codes are copied like 16-bit elements.
  RowCopy<dim / 2, kStepKeys, 32, KeyCodes<dim>> k_copies;
  RowCopy<dim / 2, kStepKeys, 32, ValueCodes<dim>> v_copies;

  __device__ CodeLoader(const QueryRows& of, const KeyUnits& in, const PageList& pages)
      : rows(of),
        units(in),
        list(pages),
        k(of.call.k.at<const unsigned char>(0, 0, of.kv_head)),
        v(of.call.v.at<const unsigned char>(0, 0, of.kv_head)),
        k_copies(lane_of_warp(), of.call.dim / 2),
        v_copies(lane_of_warp(), of.call.dim / 2) {
    const KeyScales& mine = brings_key_scale() ? of.call.k_scales : of.call.v_scales;
    scales = mine.data + of.kv_head * mine.head_stride;
    scale_batch = mine.batch_stride;
  }

  __device__ static bool brings_key_scale() { return lane_of_warp() < kStepKeys; }

  __device__ void step(int k0, CodeStage<dim>& stage) const {
    const auto page_at = [&](std::uint32_t i) {
      return list.page(rows.call.page_table + rows.sequence.index * rows.call.table_stride, i);
    };
    const int place = lane_of_warp() % kStepKeys;  // the lane's key in the step
    const Neighbours near = find_neighbours(rows, units, k0, rows.sequence.n_k, page_at);
    if (near.found) {
      k_copies.neighbours(stage.k, k, near.batch * units.k_batch + near.row * units.k_row,
                          units.k_row);
      v_copies.neighbours(stage.v, v, near.batch * units.v_batch + near.row * units.v_row,
                          units.v_row);
      copy_scale(near.batch, near.row + static_cast<std::uint32_t>(place), stage);
      return;
    }
    const int key = k0 + place;
    KeyPlace at{0, 0, true};
    const KeyRow mine = find_key_row(units, rows.sequence, key, [&](int j) {
      at = find_key_place(rows.call, units, rows.sequence, j, page_at);
      return at;
    });
    const auto k_row = [&](int r) { return __shfl_sync(0xffffffffu, mine.k, r); };
    const auto v_row = [&](int r) { return __shfl_sync(0xffffffffu, mine.v, r); };
    k_copies.by_vectors(stage.k, k, k_row);
    v_copies.by_vectors(stage.v, v, v_row);
    if (!at.lost) {
      copy_scale(at.batch, at.row, stage);
    } else {
      // The scores of a key in a page that is not in the pool are NaN for all queries that see it.
      // Beyond the last key everything is 0.
      const bool fails = mine.k == kLostRow && brings_key_scale();
      stage.scales[lane_of_warp()] = fails ? __uint_as_float(0x7fffffffu) : 0.f;
    }
  }

 private:
  __device__ void copy_scale(std::uint32_t batch, std::uint32_t row, CodeStage<dim>& stage) const {
    copy_async_word(&stage.scales[lane_of_warp()], scales + batch * scale_batch + row);
  }
};

}  // namespace tessera::cuda::split
