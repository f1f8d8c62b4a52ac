// Attention of the one token, in the persistent kernel. Query heads with the same key head form
// teams of up to kQueries. Blocks divide the keys of a team. Half a warp takes one key at a time
// for all queries, 16 lanes of 8 elements each:
//
//   block    | keys of team t, split s |
//   half w   w, w + 24, w + 48, ...       for each query: largest score, sum, sums of values
//   merge    of a block: shuffles, then shared memory; of a head's splits: the reader
//
// The token's own key and value come from the product, not from the cache. The block whose share
// has that key stores both.
#pragma once

#include <cstdint>

#include "cuda/decode/attention_sizes.h"
#include "cuda/decode/call.h"
#include "cuda/decode/layer_kinds.cuh"
#include "cuda/rotary/rope.cuh"
#include "cuda/tile/element.cuh"
#include "cuda/tile/exp2.cuh"
#include "cuda/tile/grid_dependency.cuh"

namespace tessera::cuda::decode {

// Keys of a block's first share whose places are looked up once for all layers.
inline constexpr int kFirstKeys = 8 * kHalves;

// The keys that the token sees, from first to last, and how many blocks divide them.
struct KeyRange {
  int first, end;  // the token's own key is end - 1
  int splits;

  // fewest: the fewest keys of a split.
  __device__ KeyRange(const Call& call, int fewest) {
    const std::int64_t most = std::int64_t{call.width} << call.page_log2;
    end = static_cast<int>(min(std::int64_t{call.lengths[0]}, most));
    first = call.window > 0 ? max(0, end - call.window) : 0;
    splits = max(1, min(call.most_splits, (end - first + fewest - 1) / fewest));
  }
  // (There are at most 3072 keys, and no more splits than blocks.)
  __device__ int begin_of(int split) const {
    return first + static_cast<int>(static_cast<unsigned>((end - first) * split) /
                                    static_cast<unsigned>(splits));
  }
};

// The addresses of the cache's rows. Page numbers must be valid in the pool.
struct CacheRows {
  const Call& call;
  int hole_begin, hole_size;
  std::uint32_t in_row;  // the lane's place in a row, in bytes

  __device__ CacheRows(const Call& from, int head, int element)
      : call(from),
        hole_begin(from.holes != nullptr ? from.holes[0] : 0x7fffffff),
        hole_size(from.holes != nullptr ? from.holes[1] : 0),
        in_row(head * from.head_bytes + element * 2) {}
  // The offset of a key in bytes.
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

// Query heads that a block takes together, and their common key head.
struct Team {
  int kv_head, first, count;
};
template <typename Layer>
__device__ inline Team team_of(const Call& call, int team) {
  if (Layer::kQueries == 1) return {team, team, 1};  // no heads have the same keys
  const int of_group = (call.group + Layer::kQueries - 1) / Layer::kQueries;
  const int kv_head = team / of_group, first = (team - kv_head * of_group) * Layer::kQueries;
  return {kv_head, kv_head * call.group + first, min(Layer::kQueries, call.group - first)};
}

// A share of one team's keys.
struct Item {
  Team team;
  int split, begin, end;
};
template <typename Layer>
__device__ inline Item item_of(const Call& call, const KeyRange& range, int number) {
  const int split = number / call.teams;
  return {team_of<Layer>(call, number - split * call.teams), split, range.begin_of(split),
          range.begin_of(split + 1)};
}

// Key, value and queries of the token, rotated, as T: [2 + queries][dim]. Queries beyond the team's
// last repeat it. All workers call it.
template <typename T, int queries>
__device__ void load_token(const Call& call, const Team& team, const CosSin* rotations, T* token) {
  constexpr int kVectors = 2 + queries, kRounds = (kVectors * kMostDim + kThreads - 1) / kThreads;
  const int dim = call.dim;
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int i = static_cast<int>(threadIdx.x) + round * kThreads;
    if (i >= kVectors * dim) continue;
    int which = 0;
#pragma unroll
    for (int n = 1; n < kVectors; ++n) which += i >= n * dim;
    const int e = i - which * dim;
    const HeadPlaces& places = which == 0 ? call.k : which == 1 ? call.v : call.q;
    const int head = which < 2 ? team.kv_head : team.first + min(which - 2, team.count - 1);
    const auto* from =
        reinterpret_cast<const unsigned short*>(call.qkv) + places.first + head * places.stride;
    const bool is_rotated = which != 1 && e < 2 * call.pairs;
    const int pair = call.half_split ? (e < call.pairs ? e : e - call.pairs) : e / 2;
    const bool second = call.half_split ? e >= call.pairs : e % 2 != 0;
    const int other = call.half_split ? (second ? pair : pair + call.pairs) : e ^ 1;
    const T own{__ldcg(from + e)}, partner{__ldcg(from + (is_rotated ? other : e))};
    token[i] = own;
    if (is_rotated) {
      const float a = to_f32(second ? partner : own), b = to_f32(second ? own : partner);
      const RotatedPair out = rotated(a, b, rotations[pair]);
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
// Looks up the places of a share's first keys, once for all layers, so that the page table is not
// read again. Each of `threads` threads calls it.
__device__ inline void find_first_keys(const Call& call, const Item& item, int thread, int threads,
                                       std::uint64_t* first_keys) {
  const int keys = min(item.end - item.begin, kFirstKeys);
  for (int i = thread; i < keys; i += threads) {
    first_keys[i] = CacheRows(call, 0, 0).of_key(item.begin + i);
  }
}

// Prefetches those keys and values into the L2 cache. A thread takes a line of a row.
__device__ inline void fetch_keys(const Call& call, const LayerWeights& layer, const Item& item,
                                  int own, const std::uint64_t* first_keys) {
  const int thread = static_cast<int>(threadIdx.x), line = thread % 4;  // 2 of keys, 2 of values
  const int byte = line % 2 * 128;
  if (byte >= 2 * call.dim) return;
  const int keys = min(min(item.end, own) - item.begin, kFirstKeys);
  const char* from = static_cast<const char*>(line < 2 ? layer.keys : layer.values) +
                     (item.team.kv_head * call.head_bytes + byte);
  for (int key = thread / 4; key < keys; key += kThreads / 4) prefetch(from + first_keys[key]);
}

// The state of half a warp over the keys so far: a lane's part of it.
template <int queries>
struct SeenKeys {
  static constexpr float kNothing = -1e30f;  // below every score, and 2^(it - it) is a number
  float largest[queries], sum[queries] = {}, out[queries][kLaneElements] = {};

  __device__ SeenKeys() {
#pragma unroll
    for (float& each : largest) each = kNothing;
  }
  // Rescales the sums when a larger score has come.
  template <int keys>
  __device__ void expect(int query, const float (&scores)[keys]) {
    float new_largest = largest[query];
#pragma unroll
    for (const float score : scores) new_largest = fmaxf(new_largest, score);
    const float shrink = fast_exp2(largest[query] - new_largest);
    largest[query] = new_largest;
    sum[query] *= shrink;
#pragma unroll
    for (float& each : out[query]) each *= shrink;
  }
  __device__ void add(int query, float weight, const float (&row)[kLaneElements]) {
    sum[query] += weight;
#pragma unroll
    for (int j = 0; j < kLaneElements; ++j) out[query][j] += weight * row[j];
  }
  // Merges both halves of a warp into its place in shared memory: largest, sum, values.
  __device__ void put(int query, bool has_elements, float* to) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const float other = __shfl_xor_sync(0xffffffffu, largest[query], 16);
    const float both = fmaxf(largest[query], other);
    const float shrink = fast_exp2(largest[query] - both);
    float total = sum[query] * shrink;
    total += __shfl_xor_sync(0xffffffffu, total, 16);
#pragma unroll
    for (int j = 0; j < kLaneElements; ++j) {
      float value = out[query][j] * shrink;
      value += __shfl_xor_sync(0xffffffffu, value, 16);
      if (has_elements && lane < 16) to[2 + lane * kLaneElements + j] = value;
    }
    if (lane == 0) to[0] = both, to[1] = total;
  }
};

// Merges the warps of the block and stores the result to memory. All workers call it.
template <int queries>
__device__ void merge_warps(const Call& call, const Team& team, int split, const float* of_warps) {
  static_assert(queries * (kMostDim + 1) <= kThreads);
  const int dim = call.dim, numbers = dim + 1;  // the sum, then the elements
  int query = 0;
#pragma unroll
  for (int n = 1; n <= queries; ++n) query += static_cast<int>(threadIdx.x) >= n * numbers;
  if (query >= team.count) return;
  const int at = static_cast<int>(threadIdx.x) - query * numbers;
  const float* from = of_warps + query * kWarps * (dim + 2);
  float most = SeenKeys<queries>::kNothing, weights[kWarps], merged = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    weights[w] = from[w * (dim + 2)];
    most = fmaxf(most, weights[w]);
  }
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    merged += fast_exp2(weights[w] - most) * from[w * (dim + 2) + 1 + at];
  }
  const int place = split * call.heads + team.first + query;
  if (at == 0) {
    reinterpret_cast<float2*>(call.softmaxes)[place] = {most, merged};
  } else {
    call.attended[place * dim + at - 1] = merged;
  }
}

// own: the token's own key. `is_first`: the item is the block's first, which waits for the token's
// queries and uses first_keys. `shared` has attention_floats(). All workers call it.
template <typename T, typename Layer>
__device__ void attend(const Call& call, const LayerWeights& layer, const Item& item, int own,
                       bool is_first, const std::uint64_t* first_keys, const CosSin* rotations,
                       float* shared) {
  constexpr int kQueries = Layer::kQueries, kKeysAtOnce = Layer::kKeysAtOnce;
  const int dim = call.dim, thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 16, half = thread / 16, e = lane * kLaneElements;
  const bool has_elements = e < dim;
  const Team team = item.team;
  const int begin = item.begin, end = item.end;
  T* token = reinterpret_cast<T*>(shared);
  float* of_warps = shared + (2 + kQueries) * dim / 2;
  const CacheRows rows(call, team.kv_head, e);
  const auto* keys = static_cast<const char*>(layer.keys);
  const auto* values = static_cast<const char*>(layer.values);

  uint4 k[kKeysAtOnce], v[kKeysAtOnce];
  const auto load = [&](int first) {
#pragma unroll
    for (int i = 0; i < kKeysAtOnce; ++i) {
      const int key = first + i * kHalves;
      k[i] = v[i] = uint4{};
      if (key >= end || key == own || !has_elements) continue;
      const std::uint64_t at = is_first && key - begin < kFirstKeys
                                   ? first_keys[key - begin] + rows.in_row
                                   : rows.of_key(key);
      k[i] = __ldcg(reinterpret_cast<const uint4*>(keys + at));
      v[i] = __ldcg(reinterpret_cast<const uint4*>(values + at));
    }
  };
  // The first keys are in flight before the token's own key has arrived.
  load(begin + half);
  if (is_first) Signals::receive(Layer::kHaveQkv);
  load_token<T, kQueries>(call, team, rotations, token);

  // The first team of the key head stores it into the cache.
  const auto vector = [&](int which) {
    return *reinterpret_cast<const uint4*>(token + which * dim + e);
  };
  const bool stores = team.first == team.kv_head * call.group;
  if (stores && own >= begin && own < end && thread < 32 && has_elements) {
    const auto slot = static_cast<std::uint32_t>(call.slots[0]);
    if (slot < call.pool_pages << call.page_log2) {  // so not below zero
      auto* to = static_cast<char*>(half == 0 ? layer.keys : layer.values);
      *reinterpret_cast<uint4*>(to + rows.of_slot(slot >> call.page_log2, slot)) = vector(half);
    }
  }

  SeenKeys<kQueries> seen;
  // Both halves of a warp run the same number of times, as they shuffle together.
#pragma unroll 1
  for (int first = begin; first < end; first += kKeysAtOnce * kHalves) {
    if (first > begin) load(first + half);
    float q[kQueries][kLaneElements] = {};  // loaded again each time: registers are scarce
#pragma unroll
    for (int query = 0; query < kQueries; ++query) {
      if (has_elements) to_floats<T>(vector(2 + query), q[query]);
#pragma unroll
      for (float& each : q[query]) each *= call.scale_log2;
    }
    float scores[kQueries][kKeysAtOnce];
#pragma unroll
    for (int i = 0; i < kKeysAtOnce; ++i) {
      const int key = first + half + i * kHalves;
      if (key == own && has_elements) k[i] = vector(0);
      float row[kLaneElements];
      to_floats<T>(k[i], row);
#pragma unroll
      for (int query = 0; query < kQueries; ++query) {
        float score = 0;
#pragma unroll
        for (int j = 0; j < kLaneElements; ++j) score += q[query][j] * row[j];
#pragma unroll
        for (int far = 8; far > 0; far /= 2) score += __shfl_xor_sync(0xffffffffu, score, far);
        scores[query][i] = key < end ? score : seen.kNothing;
      }
    }
#pragma unroll
    for (int query = 0; query < kQueries; ++query) seen.expect(query, scores[query]);
#pragma unroll
    for (int i = 0; i < kKeysAtOnce; ++i) {
      const int key = first + half + i * kHalves;
      if (key == own && has_elements) v[i] = vector(1);
      float row[kLaneElements];
      to_floats<T>(v[i], row);
#pragma unroll
      for (int query = 0; query < kQueries; ++query) {
        const float score = scores[query][i];
        seen.add(query, key < end ? fast_exp2(score - seen.largest[query]) : 0.f, row);
      }
    }
  }

#pragma unroll
  for (int query = 0; query < kQueries; ++query) {
    seen.put(query, has_elements, of_warps + (query * kWarps + half / 2) * (dim + 2));
  }
  Signals::sync_workers();
  merge_warps<kQueries>(call, team, item.split, of_warps);
  Signals::sync_workers();  // before `shared` is reused
}

}  // namespace tessera::cuda::decode
