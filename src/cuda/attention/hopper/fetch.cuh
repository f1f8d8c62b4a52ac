// The fetching side of the Hopper attention kernel: one thread keeps the copy engine busy. Under a
// block pattern, or with sequences of different lengths, other threads look up what to fetch.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/attention/hopper/block.cuh"
#include "cuda/attention/hopper/call.h"
#include "cuda/attention/hopper/pattern.cuh"
#include "cuda/attention/hopper/ragged.cuh"
#include "cuda/attention/hopper/work.cuh"
#include "cuda/tile/hopper/mbarrier.cuh"
#include "cuda/tile/hopper/tma.cuh"

namespace tessera::cuda::hopper {

template <typename K>
__device__ void fetch_rows(unsigned char* to, const CUtensorMap& map, int rows, int row, int head,
                           int batch, std::uint64_t& full) {
  tile::arrive_expecting(full, static_cast<std::uint32_t>(K::kPanels * rows * 128));
#pragma unroll
  for (int panel = 0; panel < K::kPanels; ++panel) {
    tile::load_box(to + panel * rows * 128, &map, {64 * panel, row, head, batch}, full);
  }
}

// Fetches a tile of keys or values.
template <typename K>
__device__ void fetch_keys(unsigned char* to, const CUtensorMap& map, const HopperCall&, int row,
                           int head, const auto& work, std::uint64_t& full) {
  fetch_rows<K>(to, map, K::kKeys, row, head, work.batch, full);
}
// The same from pages: each copy reads one page. Slots after the end of the page table have none.
template <typename K>
__device__ void fetch_keys(unsigned char* to, const CUtensorMap& map, const HopperCall& call,
                           int row, int head, const RaggedWork& work, std::uint64_t& full) {
  if (work.pages == nullptr) {
    return fetch_rows<K>(to, map, K::kKeys, work.k_begin + row, head, work.k_batch, full);
  }
  tile::arrive_expecting(full, static_cast<std::uint32_t>(K::kKeyBytes));
  for (int i = 0; i < K::kKeys; i += call.box_rows) {
    const int slot = row + i;
    const int page = slot < call.n_k ? work.pages[slot / call.page_size] : -1;
#pragma unroll
    for (int panel = 0; panel < K::kPanels; ++panel) {
      tile::load_box(to + panel * K::kKeyPanel + i * 128, &map,
                     {64 * panel, slot % call.page_size, head, page}, full);
    }
  }
}

// Hands out the items, the longest first: a block that is done takes the next one.
struct Dealer {
  const HopperCall& call;
  int item = static_cast<int>(blockIdx.x);

  __device__ bool done() const { return item >= call.items; }
  __device__ void next() { item = static_cast<int>(gridDim.x) + atomicAdd(&call.counters[0], 1); }
  // The last block resets the counters.
  __device__ void leave() const {
    if (atomicAdd(&call.counters[1], 1) == static_cast<int>(gridDim.x) - 1) {
      call.counters[0] = call.counters[1] = 0;
    }
  }
};

// The state of the fetching thread.
template <typename K>
struct Fetcher {
  const HopperCall& call;
  K& block;
  tile::Ring<K::kStages> stage{};
  std::uint32_t q_parity = 1;

  // Fetches the tiles of an item; Item is Work, PatternWork or RaggedWork.
  template <typename Item>
  __device__ void fetch_item(const Item& work) {
    auto& bar = *block.barriers;
    const int tiles = work.tiles();
    const int kv_head = work.head / call.group;
    for (int i = 0; i < tiles; ++i) {
      const int key_tile = work.tile(i);
      const int row = key_tile * K::kKeys;
      tile::wait(bar.k_free[stage.place], stage.parity ^ 1);
      if constexpr (K::kPattern) bar.tile_of_stage[stage.place] = key_tile;
      fetch_keys<K>(block.k + stage.place * K::kKeyBytes, call.k, call, row, kv_head, work,
                    bar.k_full[stage.place]);
      if (i == 0) {
        for (int w = 0; w < K::kWarpgroups; ++w) {
          tile::wait(bar.q_free[w], q_parity);
          fetch_rows<K>(block.q + w * K::kQueryBytes, call.q, 64,
                        first_query(work) + work.row + 64 * w, work.head, work.batch,
                        bar.q_full[w]);
        }
        q_parity ^= 1;
      }
      tile::wait(bar.v_free[stage.place], stage.parity ^ 1);
      fetch_keys<K>(block.v + stage.place * K::kKeyBytes, call.v, call, row, kv_head, work,
                    bar.v_full[stage.place]);
      stage.advance();
    }
  }
};

// Publishes the number of the next item to the other warpgroups and, if it is dealt, its contents.
template <typename K>
__device__ void publish_item(K& block, tile::Ring<2>& slot, int item,
                             const typename K::Item& work = {}) {
  auto& bar = *block.barriers;
  tile::wait(bar.item_free[slot.place], slot.parity ^ 1);
  bar.items[slot.place] = item;
  if constexpr (K::kDealt) bar.dealt[slot.place] = work;
  tile::arrive(bar.item_full[slot.place]);
  slot.advance();
}

// Under a band, every thread computes the item by itself.
template <typename K>
__device__ void fetch(const HopperCall& call, K& block) {
  Fetcher<K> fetcher{call, block};
  tile::Ring<2> slot;
  Dealer dealer{call};
  for (; true; dealer.next()) {
    publish_item(block, slot, dealer.item);
    if (dealer.done()) break;
    fetcher.fetch_item(find_work<K::kRows, K::kKeys>(call, dealer.item));
  }
  dealer.leave();
}

// One otherwise idle thread looks up the pattern for all: that takes several loads, each waiting
// for the one before.
template <typename K>
__device__ void deal_pattern(const HopperCall& call, K& block) {
  tile::Ring<2> slot;
  Dealer dealer{call};
  for (; true; dealer.next()) {
    PatternWork work{};
    if (!dealer.done()) work = find_pattern_work<K::kRows, K::kKeys>(call, dealer.item);
    publish_item(block, slot, dealer.item, work);
    if (dealer.done()) break;
  }
  dealer.leave();
}

// One warp looks items up for all. After the last turn of a section of heads, the section is done.
template <typename K>
__device__ void deal_ragged(const HopperCall& call, K& block) {
  const bool first_lane = threadIdx.x % 32 == 0;
  tile::Ring<2> slot;
  Dealer dealer{call};
  const int last_section = (call.heads - 1) / call.section_heads;
  while (true) {
    RaggedWork work{};
    const bool found =
        !dealer.done() && find_ragged_work<K::kRows, K::kKeys>(call, dealer.item, work);
    if (!found && dealer.item / (call.section_heads * call.row_tiles) >= last_section) {
      dealer.item = call.items;
    }
    if (first_lane && (found || dealer.done())) publish_item(block, slot, dealer.item, work);
    if (dealer.done()) break;
    if (first_lane) dealer.next();
    dealer.item = from_first_lane(dealer.item);
  }
  if (first_lane) dealer.leave();
}

// Fetches the items that another thread has dealt.
template <typename K>
__device__ void fetch_dealt(const HopperCall& call, K& block) {
  auto& bar = *block.barriers;
  Fetcher<K> fetcher{call, block};
  tile::Ring<2> slot;
  while (true) {
    tile::wait(bar.item_full[slot.place], slot.parity);
    if (bar.items[slot.place] >= call.items) break;
    fetcher.fetch_item(bar.dealt[slot.place]);
    tile::arrive(bar.item_free[slot.place]);
    slot.advance();
  }
}

}  // namespace tessera::cuda::hopper
