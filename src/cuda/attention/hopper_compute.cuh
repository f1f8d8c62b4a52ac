// The computing side of the Hopper attention kernel: a warpgroup and its 64 rows of every item.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/attention/hopper_block.cuh"
#include "cuda/attention/hopper_call.h"
#include "cuda/attention/hopper_pattern.cuh"
#include "cuda/attention/hopper_products.cuh"
#include "cuda/attention/hopper_softmax.cuh"
#include "cuda/attention/hopper_work.cuh"
#include "cuda/tile/mbarrier.cuh"
#include "cuda/tile/warpgroup.cuh"
#include "cuda/tile/wgmma.cuh"

namespace tessera::cuda::hopper {

template <typename K>
class Warpgroup {
 public:
  __device__ Warpgroup(const HopperCall& call, K& block, int index)
      : call_(call), block_(block), bar_(*block.barriers), index_(index) {
    if (K::kTiles.take_turns && index == 0) tile::barrier_arrive(1, 2 * tile::kWarpgroup);
  }

  __device__ void run() {
    while (true) {
      tile::wait(bar_.item_full[slot_.place], slot_.parity);
      const int item = same_in_all(bar_.items[slot_.place]);
      if constexpr (!K::kPattern) release_item();
      if (item >= call_.items) break;
      if constexpr (K::kPattern) {
        // Left in shared memory, and asked for when it is needed: it takes no registers.
        attend_item(bar_.pattern_items[slot_.place]);
        __syncwarp();  // all lanes have read it
        release_item();
      } else {
        attend_item(find_work<K::kRows, K::kKeys>(call_, item));
      }
    }
  }

 private:
  using Item = std::conditional_t<K::kPattern, PatternWork, Work>;
  using Scores = float[K::kKeys / 2];
  using Output = float[K::kDim / 2];
  using Weights = std::uint32_t[K::kKeys / 16][4];

  // From one lane to all: so the compiler knows that a warp does not diverge over it.
  __device__ static int same_in_all(int x) { return __shfl_sync(0xffffffffu, x, 0); }

  __device__ void release_item() {
    release(bar_.item_free[slot_.place]);
    slot_.advance();
  }

  // The first of this warpgroup's rows.
  __device__ int row_of(const Item& work) const { return work.row + 64 * index_; }

  __device__ void attend_item(const Item& work) {
    const auto span = find_span<K::kKeys>(call_, work, row_of(work));
    const int tiles = span.tiles;
    Output o;
#pragma unroll
    for (float& x : o) x = 0.f;
    Softmax softmax;
    if (tiles > 0) {
      tile::wait(bar_.q_full[index_], q_parity_);
      q_parity_ ^= 1;
    }
#pragma unroll 1
    for (int i = 0; i < span.begin; ++i) pass_over(i);
    if constexpr (!K::kOverlaps) {
#pragma unroll 1
      for (int i = span.begin; i < span.end; ++i) weigh_and_add(work, span, i, softmax, o);
      if (tiles > 0) release(bar_.q_free[index_]);
    } else if (span.begin < span.end) {
      Weights p;
      float rescale[2];  // of nothing yet
      weigh(work, span, span.begin, softmax, rescale, p);
#pragma unroll 1
      for (int i = span.begin + 1; i < span.end; ++i) add_and_weigh(work, span, i, softmax, p, o);
      release(bar_.q_free[index_]);
      add_last(p, o);
    } else if (tiles > 0) {
      release(bar_.q_free[index_]);
    }
#pragma unroll 1
    for (int i = span.end; i < tiles; ++i) pass_over(i);
    const int row = row_of(work);
    if (row > -64) store<K>(call_, work, row, o, softmax);
  }

  // The tile of keys that lies in the current place.
  __device__ int tile_at(const Item& work, int i) const {
    if constexpr (K::kPattern) {
      return same_in_all(bar_.tile_of_stage[stage_.place]);
    } else {
      return work.tile(i);
    }
  }

  // A tile that other warpgroups see, and this one does not.
  __device__ void pass_over(int i) {
    tile::wait(bar_.k_full[stage_.place], stage_.parity);
    if (i > 0) {
      await_turn();
      pass_turn();
    }
    release(bar_.k_free[stage_.place]);
    tile::wait(bar_.v_full[stage_.place], stage_.parity);
    release(bar_.v_free[stage_.place]);
    stage_.advance();
  }

  // The weights of tile i, with nothing else under way.
  template <typename Span>
  __device__ void weigh(const Item& work, const Span& span, int i, Softmax& softmax,
                        float (&rescale)[2], Weights& p) {
    Scores s;
    tile::wait(bar_.k_full[stage_.place], stage_.parity);
    if (i > 0) await_turn();  // nobody does at tile 0
    tile::wgmma_fence();
    start_scores<K>(s, queries(), block_.k + stage_.place * K::kKeyBytes);
    if (i > 0) pass_turn();
    tile::wgmma_wait<0>();
    tile::pin(s);
    const int key_tile = tile_at(work, i);
    release(bar_.k_free[stage_.place]);
    if (!span.full(i)) hide<K::kKeys>(call_, s, row_of(work), key_tile);
    softmax.weigh(s, call_.exponent_scale, rescale);
    to_operand<typename K::T>(s, p);
  }

  // Tile i by itself.
  template <typename Span>
  __device__ void weigh_and_add(const Item& work, const Span& span, int i, Softmax& softmax,
                                Output& o) {
    Weights p;
    float rescale[2];
    weigh(work, span, i, softmax, rescale, p);
#pragma unroll
    for (int j = 0; j < K::kDim / 2; ++j) o[j] *= rescale[j / 2 % 2];
    add_last(p, o);
  }

  // The scores of tile i are started, then the output of the tile before; the softmax of tile i
  // runs beside the latter.
  template <typename Span>
  __device__ void add_and_weigh(const Item& work, const Span& span, int i, Softmax& softmax,
                                Weights& p, Output& o) {
    Scores s;
    float rescale[2];
    const tile::Ring<K::kStages> last = stage_;
    stage_.advance();
    tile::wait(bar_.v_full[last.place], last.parity);
    tile::wait(bar_.k_full[stage_.place], stage_.parity);
    await_turn();
    tile::pin(o);
    tile::wgmma_fence();
    start_scores<K>(s, queries(), block_.k + stage_.place * K::kKeyBytes);
    start_output<K>(o, p, block_.v + last.place * K::kKeyBytes);
    pass_turn();

    tile::wgmma_wait<1>();
    tile::pin(s);
    const int key_tile = tile_at(work, i);
    release(bar_.k_free[stage_.place]);
    if (!span.full(i)) hide<K::kKeys>(call_, s, row_of(work), key_tile);
    softmax.weigh(s, call_.exponent_scale, rescale);
    tile::finish_first(softmax.sum[0] + softmax.sum[1], block_.q);

    tile::wgmma_wait<0>();
    tile::pin(o);
    release(bar_.v_free[last.place]);
    to_operand<typename K::T>(s, p);
#pragma unroll
    for (int j = 0; j < K::kDim / 2; ++j) o[j] *= rescale[j / 2 % 2];
  }

  __device__ void add_last(const Weights& p, Output& o) {
    tile::wait(bar_.v_full[stage_.place], stage_.parity);
    tile::pin(o);
    tile::wgmma_fence();
    start_output<K>(o, p, block_.v + stage_.place * K::kKeyBytes);
    tile::wgmma_wait<0>();
    tile::pin(o);
    release(bar_.v_free[stage_.place]);
    stage_.advance();
  }

  // Turns at the tensor cores: barrier 1 + w calls warpgroup w. Each takes one turn at every tile
  // of an item but the first.
  __device__ void await_turn() const {
    if constexpr (K::kTiles.take_turns) tile::barrier_sync(1 + index_, 2 * tile::kWarpgroup);
  }
  __device__ void pass_turn() const {
    if constexpr (K::kTiles.take_turns) {
      tile::barrier_arrive(1 + (index_ + 1) % K::kWarpgroups, 2 * tile::kWarpgroup);
    }
  }

  __device__ const unsigned char* queries() const { return block_.q + index_ * K::kQueryBytes; }

  const HopperCall& call_;
  K& block_;
  typename K::Barriers& bar_;
  const int index_;
  tile::Ring<K::kStages> stage_;
  tile::Ring<2> slot_;
  std::uint32_t q_parity_ = 0;
};

}  // namespace tessera::cuda::hopper
