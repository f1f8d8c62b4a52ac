// Attention of the one token, in the persistent kernel. Blocks share the keys of a head; half a
// warp takes a key at a time, 16 lanes of 8 elements each:
//
//   block    | keys of head h, split s |
//   half w   w, w + 32, w + 64, ...       its own softmax: largest score, sum, sums of values
//   merge    of a block: shuffles, then shared memory; of a head's splits: who reads them
//
// The token's own key and value come from the product, not from the cache. The block whose share
// has that key stores both.
#pragma once

#include <cstdint>

#include "cuda/decode/attention_sizes.h"
#include "cuda/decode/call.h"
#include "cuda/rotary/rope.cuh"
#include "cuda/tile/element.cuh"
#include "cuda/tile/exp2.cuh"
#include "cuda/tile/grid_dependency.cuh"
#include "cuda/tile/grid_signal.cuh"

namespace tessera::cuda::decode {

using Signals = GridSignals<kThreads>;

// Keys of a half that are on their way at once.
inline constexpr int kKeysAtOnce = 4;
inline constexpr int kFirstKeys = kKeysAtOnce * kHalves;
// Below so many keys a split is not worth its merging.
inline constexpr int kFewestKeys = 64;

// What the token sees, from first to last, and how many blocks share it.
struct KeyRange {
  int first, end;  // the token's own key is end - 1
  int splits;

  __device__ KeyRange(const Call& call) {
    const std::int64_t most = std::int64_t{call.width} << call.page_log2;
    end = static_cast<int>(min(std::int64_t{call.lengths[0]}, most));
    first = call.window > 0 ? max(0, end - call.window) : 0;
    splits = max(1, min(call.most_splits, (end - first + kFewestKeys - 1) / kFewestKeys));
  }
  __device__ int begin_of(int split) const {
    return first + static_cast<int>(std::int64_t{end - first} * split / splits);
  }
};

// Where the rows of the cache are. Page numbers must be those of the pool.
struct CacheRows {
  const Call& call;
  int hole_begin, hole_size;
  std::uint32_t in_row;  // the lane's place in a row, in bytes

  __device__ CacheRows(const Call& from, int head, int element)
      : call(from),
        hole_begin(from.holes != nullptr ? from.holes[0] : 0x7fffffff),
        hole_size(from.holes != nullptr ? from.holes[1] : 0),
        in_row(head * from.head_bytes + element * 2) {}
  // In bytes.
  __device__ std::uint64_t of_key(int key) const {
    const auto slot = static_cast<std::uint32_t>(key >= hole_begin ? key + hole_size : key);
    const std::uint32_t page = min(slot >> call.page_log2, call.width - 1u);
    return of_slot(static_cast<std::uint32_t>(call.table[page]), slot);
  }
  __device__ std::uint64_t of_slot(std::uint32_t page, std::uint32_t slot) const {
    const std::uint32_t row = slot & ((1u << call.page_log2) - 1);
    return std::uint64_t{page} * call.page_bytes + (row * call.row_bytes + in_row);
  }
};

// q, k and v of the token, rotated, as T: [3][dim]. All workers call it.
template <typename T>
__device__ void load_token(const Call& call, int head, const CosSin* turns, T* token) {
  const int dim = call.dim, i = static_cast<int>(threadIdx.x);
  static_assert(3 * kMostDim <= kThreads);
  if (i < 3 * dim) {
    const int which = (i >= dim) + (i >= 2 * dim), e = i - which * dim;
    const HeadPlaces& places = which == 0 ? call.q : which == 1 ? call.k : call.v;
    const auto* from =
        reinterpret_cast<const unsigned short*>(call.qkv) + places.first + head * places.stride;
    const bool turns_it = which < 2 && e < 2 * call.pairs;
    const int pair = call.half_split ? (e < call.pairs ? e : e - call.pairs) : e / 2;
    const bool second = call.half_split ? e >= call.pairs : e % 2 != 0;
    const int other = call.half_split ? (second ? pair : pair + call.pairs) : e ^ 1;
    const T own{__ldcg(from + e)}, partner{__ldcg(from + (turns_it ? other : e))};
    token[i] = own;
    if (turns_it) {
      const float a = to_f32(second ? partner : own), b = to_f32(second ? own : partner);
      const TurnedPair out = turned(a, b, turns[pair]);
      token[i] = from_f32<T>(second ? out.second : out.first);
    }
  }
  Signals::sync_workers();
}

// A lane's eight elements of a row.
template <typename T>
__device__ inline void to_floats(const uint4& vector, float (&values)[kLaneElements]) {
  const std::uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = to_f32(T{static_cast<std::uint16_t>(words[i])});
    values[2 * i + 1] = to_f32(T{static_cast<std::uint16_t>(words[i] >> 16)});
  }
}
// Where the first keys of a share are: the same for all layers, and a page table need not be read
// again. All workers call it.
__device__ inline void find_first_keys(const Call& call, const KeyRange& range, int split,
                                       std::uint64_t* first_keys) {
  const int i = static_cast<int>(threadIdx.x), key = range.begin_of(split) + i;
  if (i < kFirstKeys && key < range.begin_of(split + 1)) {
    first_keys[i] = CacheRows(call, 0, 0).of_key(key);
  }
}

// They come into the second cache. A lane takes a line of a row.
__device__ inline void fetch_keys(const Call& call, const LayerWeights& layer,
                                  const KeyRange& range, int head, int split,
                                  const std::uint64_t* first_keys) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 4;  // 2 of keys, 2 of values
  const int byte = lane % 2 * 128;
  const int keys = min(range.begin_of(split + 1), range.end - 1) - range.begin_of(split);
  const auto* from = static_cast<const char*>(lane < 2 ? layer.keys : layer.values);
  if (thread / 4 < keys && thread / 4 < kFirstKeys && byte < 2 * call.dim) {
    prefetch(from + first_keys[thread / 4] + head * call.head_bytes + byte);
  }
}

// One share of one head's keys. `is_first`: of the block, which then waits for the token's query,
// and has first_keys. `shared` has attention_floats(). All workers call it.
template <typename T>
__device__ void attend(const Call& call, const LayerWeights& layer, const KeyRange& range, int head,
                       int split, bool is_first, const std::uint64_t* first_keys,
                       const CosSin* turns, float* shared) {
  const int dim = call.dim, thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 16, half = thread / 16, e = lane * kLaneElements;
  const bool has_elements = e < dim;
  const int begin = range.begin_of(split), end = range.begin_of(split + 1), own = range.end - 1;
  T* token = reinterpret_cast<T*>(shared);
  float* of_warps = shared + 3 * dim / 2;
  const CacheRows rows(call, head, e);
  const auto* keys = static_cast<const char*>(layer.keys);
  const auto* values = static_cast<const char*>(layer.values);

  uint4 k[kKeysAtOnce], v[kKeysAtOnce];
  const auto load = [&](int first) {
#pragma unroll
    for (int i = 0; i < kKeysAtOnce; ++i) {
      const int key = first + i * kHalves;
      k[i] = v[i] = uint4{};
      if (key >= end || key == own || !has_elements) continue;
      const std::uint64_t at = is_first && first == begin + half
                                   ? first_keys[half + i * kHalves] + rows.in_row
                                   : rows.of_key(key);
      k[i] = __ldcg(reinterpret_cast<const uint4*>(keys + at));
      v[i] = __ldcg(reinterpret_cast<const uint4*>(values + at));
    }
  };
  // The first keys are on their way before the token's own is there.
  load(begin + half);
  if (is_first) Signals::receive(kHaveQkv);
  load_token<T>(call, head, turns, token);

  // Into the cache.
  const auto vector = [&](int which) {
    return *reinterpret_cast<const uint4*>(token + which * dim + e);
  };
  if (own >= begin && own < end && thread < 32 && has_elements) {
    const auto slot = static_cast<std::uint32_t>(call.slots[0]);
    if (slot < call.pool_pages << call.page_log2) {  // so not below zero
      auto* to = static_cast<char*>(half == 0 ? layer.keys : layer.values);
      *reinterpret_cast<uint4*>(to + rows.of_slot(slot >> call.page_log2, slot)) =
          vector(half == 0 ? 1 : 2);
    }
  }

  float q[kLaneElements] = {}, out[kLaneElements] = {};
  if (has_elements) {
    to_floats<T>(vector(0), q);
#pragma unroll
    for (float& each : q) each *= call.scale_log2;
  }
  constexpr float kNothing = -1e30f;  // below every score, and 2^(kNothing - kNothing) is a number
  float largest = kNothing, sum = 0;
  // All halves of a warp the same number of times, as they shuffle together.
#pragma unroll 1
  for (int first = begin; first < end; first += kKeysAtOnce * kHalves) {
    if (first > begin) load(first + half);
    float scores[kKeysAtOnce], new_largest = largest;
#pragma unroll
    for (int i = 0; i < kKeysAtOnce; ++i) {
      const int key = first + half + i * kHalves;
      if (key == own && has_elements) k[i] = vector(1);
      float row[kLaneElements];
      to_floats<T>(k[i], row);
      float score = 0;
#pragma unroll
      for (int j = 0; j < kLaneElements; ++j) score += q[j] * row[j];
#pragma unroll
      for (int far = 8; far > 0; far /= 2) score += __shfl_xor_sync(0xffffffffu, score, far);
      scores[i] = key < end ? score : kNothing;
      new_largest = fmaxf(new_largest, scores[i]);
    }
    const float shrink = fast_exp2(largest - new_largest);
    largest = new_largest;
    sum *= shrink;
#pragma unroll
    for (int j = 0; j < kLaneElements; ++j) out[j] *= shrink;
#pragma unroll
    for (int i = 0; i < kKeysAtOnce; ++i) {
      const int key = first + half + i * kHalves;
      const float weight = key < end ? fast_exp2(scores[i] - largest) : 0.f;
      if (key == own && has_elements) v[i] = vector(2);
      float row[kLaneElements];
      to_floats<T>(v[i], row);
      sum += weight;
#pragma unroll
      for (int j = 0; j < kLaneElements; ++j) out[j] += weight * row[j];
    }
  }

  // Both halves of a warp, then the warps of the block, then out.
  const float other = __shfl_xor_sync(0xffffffffu, largest, 16), both = fmaxf(largest, other);
  const float shrink = fast_exp2(largest - both);
  sum *= shrink;
  sum += __shfl_xor_sync(0xffffffffu, sum, 16);
#pragma unroll
  for (int j = 0; j < kLaneElements; ++j) {
    out[j] *= shrink;
    out[j] += __shfl_xor_sync(0xffffffffu, out[j], 16);
  }
  float* mine = of_warps + half / 2 * (dim + 2);
  if (has_elements && half % 2 == 0) {
#pragma unroll
    for (int j = 0; j < kLaneElements; ++j) mine[2 + e + j] = out[j];
  }
  if (thread % 32 == 0) mine[0] = both, mine[1] = sum;
  Signals::sync_workers();
  const int place = split * call.heads + head;
  if (thread < dim + 1) {  // the sum, then the elements
    float most = kNothing, weights[kWarps], merged = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      weights[w] = of_warps[w * (dim + 2)];
      most = fmaxf(most, weights[w]);
    }
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      merged += fast_exp2(weights[w] - most) * of_warps[w * (dim + 2) + 1 + thread];
    }
    if (thread == 0) {
      reinterpret_cast<float2*>(call.softmaxes)[place] = {most, merged};
    } else {
      call.attended[place * dim + thread - 1] = merged;
    }
  }
  Signals::sync_workers();  // before anyone reuses `shared`
}

// Four neighbours of the heads' output, from element e on, of all splits. A few splits at a time:
// their loads are on their way together.
__device__ inline float4 attended_at(const Call& call, int splits, int e) {
  constexpr int kAtOnce = 4;
  const int head = e / call.dim, width = call.heads * call.dim;
  float most = -1e30f, sum = 0;
  float4 out{};
#pragma unroll 1
  for (int s0 = 0; s0 < splits; s0 += kAtOnce) {
    float2 softmax[kAtOnce];
    float4 values[kAtOnce];
    const float before = most;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      softmax[i] = {-1e30f, 0};
      values[i] = {};
      if (s0 + i >= splits) continue;
      softmax[i] =
          __ldcg(reinterpret_cast<const float2*>(call.softmaxes) + (s0 + i) * call.heads + head);
      values[i] = __ldcg(reinterpret_cast<const float4*>(call.attended + (s0 + i) * width + e));
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) most = fmaxf(most, softmax[i].x);
    const float shrink = fast_exp2(before - most);
    sum *= shrink;
    out = {out.x * shrink, out.y * shrink, out.z * shrink, out.w * shrink};
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float weight = fast_exp2(softmax[i].x - most);
      const float4& value = values[i];
      sum += weight * softmax[i].y;
      out = {out.x + weight * value.x, out.y + weight * value.y, out.z + weight * value.z,
             out.w + weight * value.w};
    }
  }
  const float inverse = 1.f / sum;
  return {out.x * inverse, out.y * inverse, out.z * inverse, out.w * inverse};
}

}  // namespace tessera::cuda::decode
