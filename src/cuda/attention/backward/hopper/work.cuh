// Which keys a block has, which tiles of queries see some of them, and which pairs see each other.
#pragma once

#include "cuda/attention/backward/hopper/call.h"

namespace tessera::cuda::backward {

// A tile of keys of one head. `steps` tiles of queries see some of them: `tiles` of each query head
// of the group, from `first` on.
struct HopperWork {
  int batch, kv_head, key_tile;
  int first, tiles, steps;
  int begin;  // which tile comes first: blocks that add to the same sums start at different tiles
};

template <int queries>
__device__ HopperWork find_hopper_work(const HopperGradients& call, int item) {
  HopperWork work;
  const int section_items = call.section_heads * call.key_tiles;
  const int section = item / section_items, within = item % section_items;
  const int first_head = section * call.section_heads;
  const int heads = min(call.section_heads, call.all_heads - first_head);
  const int head = first_head + within % heads;
  work.batch = head / call.kv_heads;
  work.kv_head = head % call.kv_heads;
  work.key_tile = within / heads;

  const int shift = call.n_k - call.n_q;  // from a row to its position
  const int k0 = work.key_tile * kHopperKeys, k1 = min(call.n_k, k0 + kHopperKeys);
  const int begin = call.right < 0 ? 0 : max(0, k0 - call.right - shift);
  const int end =
      call.left < 0 || k0 < call.n_sink ? call.n_q : min(call.n_q, k1 + call.left - shift);
  work.first = begin / queries;
  work.tiles = end > begin ? (end + queries - 1) / queries - work.first : 0;
  work.steps = work.tiles * call.group;
  work.begin = call.right < 0 && work.tiles > 0 ? work.key_tile % work.tiles : 0;
  return work;
}

// Goes over the steps of a block's work.
struct HopperStep {
  int head, tile;  // of the group; of queries
  int left;        // tiles of this head

  __device__ static HopperStep first(const HopperWork& work) {
    return {0, work.first + work.begin, work.tiles};
  }
  __device__ void advance(const HopperWork& work) {
    if (++tile == work.first + work.tiles) tile = work.first;
    if (--left == 0) {
      ++head;
      *this = {head, work.first + work.begin, work.tiles};
    }
  }
};

// Whether all of `queries` queries from q0 on see all of 64 keys from k0 on.
__device__ inline bool all_see(const HopperGradients& call, int queries, int q0, int k0) {
  const int shift = call.n_k - call.n_q;
  const int p0 = q0 + shift, p1 = min(q0 + queries, call.n_q) - 1 + shift;
  return k0 + 64 <= call.n_k && (call.right < 0 || k0 + 63 - p0 <= call.right) &&
         (call.left < 0 || p1 - k0 <= call.left);
}

// The queries that see a lane's key, counted from some first query: [begin, end), and all from
// `sinks` on.
struct SeenBy {
  int begin, end, sinks;

  __device__ bool operator()(int c) const { return (c >= begin && c < end) || c >= sinks; }
  __device__ static SeenBy of(const HopperGradients& call, int q0, int key) {
    constexpr int kNever = 1 << 30;
    if (key >= call.n_k) return {kNever, 0, kNever};
    const int distance = key - (q0 + call.n_k - call.n_q);  // from the first query's position
    return {call.right < 0 ? -kNever : distance - call.right,
            call.left < 0 ? kNever : distance + call.left + 1,
            key < call.n_sink ? distance : kNever};
  }
};

}  // namespace tessera::cuda::backward
