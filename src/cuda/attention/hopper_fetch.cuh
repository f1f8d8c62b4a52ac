// The fetching side of the Hopper attention kernel: one thread keeps the copy engine busy.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/attention/hopper_block.cuh"
#include "cuda/attention/hopper_call.h"
#include "cuda/attention/hopper_work.cuh"
#include "cuda/tile/mbarrier.cuh"
#include "cuda/tile/tma.cuh"

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

template <typename K>
__device__ void fetch(const HopperCall& call, K& block) {
  auto& bar = *block.barriers;
  tile::Ring<K::kStages> stage;
  std::uint32_t q_parity = 1;
  tile::Ring<2> slot;
  // Work is dealt out one by one, the longest first: whoever is done takes the next.
  for (int item = blockIdx.x; true; item = gridDim.x + atomicAdd(&call.counters[0], 1)) {
    tile::wait(bar.item_free[slot.place], slot.parity ^ 1);
    bar.items[slot.place] = item;
    tile::arrive(bar.item_full[slot.place]);
    slot.advance();
    if (item >= call.items) break;
    const Work work = find_work<K::kRows, K::kKeys>(call, item);
    const int tiles = work.tiles();
    const int kv_head = work.head / call.group;
    const auto fetch_keys = [&](int i) {
      const int row = work.tile(i) * K::kKeys;
      tile::wait(bar.k_free[stage.place], stage.parity ^ 1);
      fetch_rows<K>(block.k + stage.place * K::kKeyBytes, call.k, K::kKeys, row, kv_head,
                    work.batch, bar.k_full[stage.place]);
    };
    const auto fetch_values = [&](int i) {
      const int row = work.tile(i) * K::kKeys;
      tile::wait(bar.v_free[stage.place], stage.parity ^ 1);
      fetch_rows<K>(block.v + stage.place * K::kKeyBytes, call.v, K::kKeys, row, kv_head,
                    work.batch, bar.v_full[stage.place]);
    };
    for (int i = 0; i < tiles; ++i) {
      fetch_keys(i);
      if (i == 0) {
        for (int w = 0; w < K::kWarpgroups; ++w) {
          tile::wait(bar.q_free[w], q_parity);
          fetch_rows<K>(block.q + w * K::kQueryBytes, call.q, 64, work.row + 64 * w, work.head,
                        work.batch, bar.q_full[w]);
        }
        q_parity ^= 1;
      }
      fetch_values(i);
      stage.advance();
    }
  }
  // The last block leaves the counters as it found them.
  if (atomicAdd(&call.counters[1], 1) == static_cast<int>(gridDim.x) - 1) {
    call.counters[0] = call.counters[1] = 0;
  }
}

}  // namespace tessera::cuda::hopper
