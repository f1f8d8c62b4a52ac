// The new tokens of a call (NewTokens): the kernel rotates their queries and keys, and writes their
// keys and values to the cache. A step of the split kernel with such keys reads them from the
// product's output:
//
//   cache    | k0 | k1 | k2 | k3 |  - |        the page's row is not read: it is not written yet
//   product                      |  k |        copied beside the others, rotated in shared memory,
//                                              and stored into the row from there
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/attention/portable/fragments.cuh"
#include "cuda/attention/portable/shared_rows.cuh"
#include "cuda/attention/portable/tensor_core.h"
#include "cuda/rotary/rope.cuh"
#include "cuda/tile/cp_async.cuh"
#include "cuda/tile/element.cuh"

namespace tessera::cuda::split {

// The new tokens of one sequence, for one key head.
template <typename T>
struct NewRows {
  const NewTokens& tokens;
  const QueryRows& rows;
  const CosSin* rotations;  // [n_q, pairs]

  // The token's number among the call's tokens.
  __device__ std::int64_t token(int i) const {
    const SmallSequence& s = rows.sequence;
    return std::int64_t{s.q_batch} * rows.call.n_q + s.q_begin + i;
  }
  // The first of the new keys; negative if the sequence has fewer keys than queries.
  __device__ int first() const { return rows.sequence.shift(); }
  __device__ bool has(int key) const { return key >= first() && key < rows.sequence.n_k; }
  __device__ bool in_step(int k0) const {
    return k0 + kStepKeys > first() && k0 < rows.sequence.n_k;
  }
  // Calls fn(row of the step, token of the sequence).
  template <typename F>
  __device__ void for_each(int k0, F fn) const {
    for (int r = std::max(0, first() - k0); r < kStepKeys && k0 + r < rows.sequence.n_k; ++r) {
      fn(r, k0 + r - first());
    }
  }

  // Starts the copies of keys and values into a step. A warp calls it.
  template <int dim>
  __device__ void copy(int k0, unsigned char* k, unsigned char* v) const {
    const int chunks = rows.call.dim / 8;
    for_each(k0, [&](int r, int i) {
      const T* from_k = static_cast<const T*>(tokens.k.data) + token(i) * tokens.k.token_stride +
                        rows.kv_head * tokens.k.head_stride;
      const T* from_v = static_cast<const T*>(tokens.v.data) + token(i) * tokens.v.token_stride +
                        rows.kv_head * tokens.v.head_stride;
      for (int c = lane_of_warp(); c < 2 * (dim / 8); c += 32) {
        const int chunk = c % (dim / 8);
        unsigned char* to = (c < dim / 8 ? k : v) + PaddedRows<dim>::at(r, chunk);
        const bool there = chunk < chunks;
        copy_async(to, (c < dim / 8 ? from_k : from_v) + (there ? 8 * chunk : 0), there);
      }
    });
  }
  // Rotates the new keys of a step, in place. A warp calls it.
  template <int dim>
  __device__ void rotate_keys(int k0, unsigned char* k) const {
    for_each(k0, [&](int r, int i) {
      T* row = reinterpret_cast<T*>(k + PaddedRows<dim>::at(r, 0));
      for (int pair = lane_of_warp(); pair < tokens.pairs; pair += 32) {
        const Pair at = tokens.pair(pair);
        const RotatedPair out = rotated(to_f32(row[at.first]), to_f32(row[at.second]),
                                        rotations[i * tokens.pairs + pair]);
        row[at.first] = from_f32<T>(out.first);
        row[at.second] = from_f32<T>(out.second);
      }
    });
  }
  // Stores the new keys and values of a step into their pages. A warp calls it.
  template <int dim>
  __device__ void store(int k0, const unsigned char* k, const unsigned char* v) const {
    const AttentionCall& call = rows.call;
    for_each(k0, [&](int r, int i) {
      const std::int64_t slot = tokens.slots[token(i)];
      if (slot < 0 || slot >= call.pool_pages * call.page_size) return;
      const auto narrow = static_cast<std::uint32_t>(slot);  // 31 bits
      const auto size = static_cast<std::uint32_t>(call.page_size);
      T* to_k = call.k.at<T>(narrow / size, narrow % size, rows.kv_head);
      T* to_v = call.v.at<T>(narrow / size, narrow % size, rows.kv_head);
      for (int chunk = lane_of_warp(); chunk < call.dim / 8; chunk += 32) {
        const int at = PaddedRows<dim>::at(r, chunk);
        *reinterpret_cast<uint4*>(to_k + 8 * chunk) = *reinterpret_cast<const uint4*>(k + at);
        *reinterpret_cast<uint4*>(to_v + 8 * chunk) = *reinterpret_cast<const uint4*>(v + at);
      }
    });
  }
};

// Makes the rotations of a sequence's tokens, once for all heads. All threads of a block call it.
template <typename T>
__device__ void make_rotations(const NewRows<T>& fresh, CosSin* rotations) {
  const NewTokens& tokens = fresh.tokens;
  const int count = fresh.rows.sequence.n_q * tokens.pairs;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += 32 * kWarps) {
    const std::int64_t position =
        index_at(tokens.positions, tokens.position_dtype, fresh.token(i / tokens.pairs));
    rotations[i] = cos_sin(position, tokens.inv_freq[i % tokens.pairs]);
  }
}

// Sets queries that do not exist, and elements beyond the head dim, to zero.
template <int dim>
__device__ void clear_queries(unsigned char* q) {
  constexpr int kVectors = static_cast<int>(kFewRows) * PaddedRows<dim>::kRowBytes / 16;
  for (int i = static_cast<int>(threadIdx.x); i < kVectors; i += 32 * kWarps) {
    reinterpret_cast<uint4*>(q)[i] = make_uint4(0, 0, 0, 0);
  }
}

// Loads and rotates the queries, rounded to T like the cache's keys. All threads of a block call
// it.
template <int dim, typename T>
__device__ void load_rotated_queries(const NewRows<T>& fresh, unsigned char* q) {
  const NewTokens& tokens = fresh.tokens;
  const int units = fresh.rows.call.dim - tokens.pairs;  // of a row: pairs, then single elements
  for (int i = static_cast<int>(threadIdx.x); i < fresh.rows.size * units; i += 32 * kWarps) {
    const int r = i / units, unit = i % units, query = fresh.rows.query(r);
    const T* from = static_cast<const T*>(tokens.q.data) +
                    fresh.token(query) * tokens.q.token_stride +
                    fresh.rows.head(r) * tokens.q.head_stride;
    T* to = reinterpret_cast<T*>(q + PaddedRows<dim>::at(r, 0));
    if (unit >= tokens.pairs) {
      to[unit + tokens.pairs] = from[unit + tokens.pairs];
      continue;
    }
    const Pair at = tokens.pair(unit);
    const RotatedPair out = rotated(to_f32(from[at.first]), to_f32(from[at.second]),
                                    fresh.rotations[query * tokens.pairs + unit]);
    to[at.first] = from_f32<T>(out.first);
    to[at.second] = from_f32<T>(out.second);
  }
}

}  // namespace tessera::cuda::split
