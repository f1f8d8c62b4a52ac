// The computing side of the Hopper attention kernel: a warpgroup, and its 64 rows of every item.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/attention/hopper/block.cuh"
#include "cuda/attention/hopper/call.h"
#include "cuda/attention/hopper/pattern.cuh"
#include "cuda/attention/hopper/products.cuh"
#include "cuda/attention/hopper/ragged.cuh"
#include "cuda/attention/hopper/softmax.cuh"
#include "cuda/attention/hopper/work.cuh"
#include "cuda/tile/hopper/mbarrier.cuh"
#include "cuda/tile/hopper/warpgroup.cuh"
#include "cuda/tile/hopper/wgmma.cuh"

namespace tessera::cuda::hopper {

template <typename K>
class Warpgroup {
 public:
  __device__ Warpgroup(const HopperCall& call, K& block, int index)
      : call_(call), block_(block), bar_(*block.barriers), index_(index) {
    if (K::kTiles.take_turns && index == 0) tile::barrier_arrive(1, 2 * tile::kWarpgroup);
  }

  // Runs one item after the other. Ahead: the next item is taken before this one is stored, and the
  // scores of its first tile run beside the store.
  __device__ void run() {
    Job job;   // ahead: the next item
    Scores s;  // ahead: of its first tile that is seen
    if constexpr (kAhead) {
      job = take_job();
      if (!job.there) return;
      begin(job.span, s);
    }
    while (true) {
      int item = 0;
      if constexpr (!kAhead) {
        item = await_item();
        if constexpr (!K::kDealt) release_item();
        if (item >= call_.items) return;
      }
      const ItemOf work = work_of(job, item);
      const SpanOf span = span_of(job, work);
      Output o;
#pragma unroll
      for (float& x : o) x = 0.f;
      Softmax softmax;
      if constexpr (!kAhead) await_first_tile(span);
      if constexpr (!K::kOverlaps) {
#pragma unroll 1
        for (int i = span.begin; i < span.end; ++i) weigh_and_add(work, span, i, softmax, o);
        if (span.tiles > 0) release(bar_.q_free[index_]);
      } else if (span.begin < span.end) {
        Weights p;
        float rescale[2];  // of nothing yet
        if constexpr (kAhead) {
          finish_weights(work, span, span.begin, s, softmax, rescale, p);
        } else {
          weigh(work, span, span.begin, softmax, rescale, p);
        }
        if constexpr (K::kRagged) clear_values_behind(work, span.begin);
#pragma unroll 1
        for (int i = span.begin + 1; i < span.end; ++i) add_and_weigh(work, span, i, softmax, p, o);
        release(bar_.q_free[index_]);
        if constexpr (kAhead) {
          job = take_job();
          // No tile lies between this one and the next item's first.
          if (job.there && span.end == span.tiles && job.span.begin == 0 && job.span.end > 0) {
            add_last_and_begin(work, softmax, p, o, s);
            continue;
          }
        }
        add_last(p, o);
      } else {
        if (span.tiles > 0) release(bar_.q_free[index_]);
        if constexpr (kAhead) job = take_job();
      }
      pass_over(span.end, span.tiles);
      const int row = row_of(work);
      if (kAhead || row > -64) store<K>(call_, work, row, o, softmax);
      if constexpr (kAhead) {
        if (!job.there) return;
        begin(job.span, s);
      } else if constexpr (K::kDealt) {
        __syncwarp();  // all lanes have read the item
        release_item();
      }
    }
  }

 private:
  static constexpr bool kAhead = K::kTiles.ahead;
  // Ahead: while a warpgroup waits for the next item it still holds places: that of the last tile
  // it saw, and those of later tiles that only other warpgroups see. The fetching thread needs
  // places for all of them before it gets to the next item.
  static constexpr int kTrailing = (K::kRows - 64 + K::kKeys - 1) / K::kKeys;
  static_assert(!kAhead || kTrailing <= K::kStages - 1);
  using Item = typename K::Item;
  using SpanOf = std::conditional_t<K::kPattern, PatternSpan, Span>;
  // An item that was dealt stays in shared memory and is read when needed: it takes no registers.
  using ItemOf = std::conditional_t<K::kDealt, const Item&, Work>;
  using Scores = float[K::kKeys / 2];
  using Output = float[K::kDim / 2];
  using Weights = std::uint32_t[K::kKeys / 16][4];

  // Broadcast, so that the compiler knows that the warp does not diverge here.
  __device__ static int same_in_all(int x) { return __shfl_sync(0xffffffffu, x, 0); }

  __device__ int await_item() {
    tile::wait(bar_.item_full[slot_.place], slot_.parity);
    return same_in_all(bar_.items[slot_.place]);
  }
  __device__ void release_item() {
    release(bar_.item_free[slot_.place]);
    slot_.advance();
  }

  // The first of this warpgroup's rows.
  __device__ int row_of(const Item& work) const { return work.row + 64 * index_; }

  // ---- items -----------------------------------------------------------------------------------

  struct Job {
    Work work;
    Span span;
    bool there;
  };

  // The current work: the job that was taken ahead, or the item of this number.
  __device__ ItemOf work_of(const Job& job, int item) {
    if constexpr (K::kDealt) {
      return bar_.dealt[slot_.place];
    } else if constexpr (kAhead) {
      return job.work;
    } else {
      return find_work<K::kRows, K::kKeys>(call_, item);
    }
  }
  __device__ SpanOf span_of(const Job& job, const Item& work) {
    if constexpr (kAhead) {
      return job.span;
    } else {
      return find_span<K::kKeys>(call_, work, row_of(work));
    }
  }

  __device__ Job take_job() {
    const int item = await_item();
    release_item();
    const Work work = find_work<K::kRows, K::kKeys>(call_, min(item, call_.items - 1));
    return {work, find_span<K::kKeys>(call_, work, row_of(work)), item < call_.items};
  }

  // Waits for the queries, and skips the tiles before the first visible one.
  __device__ void await_first_tile(const SpanOf& span) {
    if (span.tiles > 0) await_queries();
    pass_over(0, span.begin);
  }

  // Computes the scores of an item's first tile, with nothing else in flight.
  __device__ void begin(const SpanOf& span, Scores& s) {
    await_first_tile(span);
    if (span.begin < span.end) {
      Scores fresh;  // a reused array would stay live until here
      first_scores(span.begin, fresh);
      copy(fresh, s);
    } else {
#pragma unroll
      for (float& x : s) x = 0.f;
    }
  }

  // Adds the last output of an item and stores it while the scores of the next item's first tile
  // run. No branches: the assembler would serialise the products.
  __device__ void add_last_and_begin(const Work& work, const Softmax& softmax, const Weights& p,
                                     Output& o, Scores& s) {
    const tile::Ring<K::kStages> last = stage_;
    stage_.advance();
    tile::wait(bar_.v_full[last.place], last.parity);
    if (has_turn(0)) await_turn();
    tile::pin(o);
    tile::wgmma_fence();
    start_output<K>(o, p, block_.v + last.place * K::kKeyBytes);
    tile::wait(bar_.k_full[stage_.place], stage_.parity);
    await_queries();
    Scores fresh;
    tile::wgmma_fence();
    start_scores<K>(fresh, queries(), block_.k + stage_.place * K::kKeyBytes);
    if (has_turn(0)) pass_turn();
    tile::wgmma_wait<1>();
    tile::pin(o);
    release(bar_.v_free[last.place]);
    store<K>(call_, work, row_of(work), o, softmax);
    tile::wgmma_wait<0>();
    tile::pin(fresh);
    copy(fresh, s);
  }

  __device__ static void copy(const Scores& from, Scores& to) {
#pragma unroll
    for (int j = 0; j < K::kKeys / 2; ++j) to[j] = from[j];
  }

  // ---- tiles -----------------------------------------------------------------------------------

  __device__ void await_queries() {
    tile::wait(bar_.q_full[index_], q_parity_);
    q_parity_ ^= 1;
  }

  // The key tile in the current stage.
  __device__ int tile_at(const Item& work, int i) const {
    if constexpr (K::kPattern) {
      return same_in_all(bar_.tile_of_stage[stage_.place]);
    } else {
      return work.tile(i);
    }
  }

  // Skips tiles that other warpgroups see and this one does not.
  __device__ void pass_over(int from, int end) {
#pragma unroll 1
    for (int i = from; i < end; ++i) {
      tile::wait(bar_.k_full[stage_.place], stage_.parity);
      if (has_turn(i)) {
        await_turn();
        pass_turn();
      }
      release(bar_.k_free[stage_.place]);
      tile::wait(bar_.v_full[stage_.place], stage_.parity);
      release(bar_.v_free[stage_.place]);
      stage_.advance();
    }
  }

  // Computes the weights of tile i, with nothing else in flight.
  __device__ void weigh(const Item& work, const SpanOf& span, int i, Softmax& softmax,
                        float (&rescale)[2], Weights& p) {
    Scores s;
    first_scores(i, s);
    finish_weights(work, span, i, s, softmax, rescale, p);
  }
  __device__ void first_scores(int i, Scores& s) {
    tile::wait(bar_.k_full[stage_.place], stage_.parity);
    if (has_turn(i)) await_turn();
    tile::wgmma_fence();
    start_scores<K>(s, queries(), block_.k + stage_.place * K::kKeyBytes);
    if (has_turn(i)) pass_turn();
    tile::wgmma_wait<0>();
    tile::pin(s);
  }
  __device__ void finish_weights(const Item& work, const SpanOf& span, int i, Scores& s,
                                 Softmax& softmax, float (&rescale)[2], Weights& p) {
    const int key_tile = tile_at(work, i);
    release(bar_.k_free[stage_.place]);
    if (!span.full(i)) {
      hide<K::kKeys>(call_, lengths_of(call_, work), s, row_of(work), key_tile);
    }
    softmax.weigh(s, call_.exponent_scale, rescale);
    to_operand<typename K::T>(s, p);
  }

  // Tile i may reach beyond the sequence's last key, into rows of another sequence or rows that
  // were never written. Their weights are 0, but 0 * NaN is NaN, so their values become zeros. Both
  // warpgroups write these zeros, so that neither has to wait for the other.
  __device__ void clear_values_behind(const Item& work, int i) {
    const int kept = same_in_all(work.lengths.n_k - work.tile(i) * K::kKeys);
    if (kept >= K::kKeys) return;
    tile::wait(bar_.v_full[stage_.place], stage_.parity);
    unsigned char* values = block_.v + stage_.place * K::kKeyBytes;
    for (int part = kept * 8 + threadIdx.x % 128; part < K::kKeys * 8; part += tile::kWarpgroup) {
#pragma unroll
      for (int panel = 0; panel < K::kPanels; ++panel) {
        *reinterpret_cast<uint4*>(values + panel * K::kKeyPanel + part * 16) = uint4{0, 0, 0, 0};
      }
    }
    tile::publish_shared();
    tile::barrier_sync(1 + K::kWarpgroups + index_, tile::kWarpgroup);
  }

  // Tile i on its own: weights, then output.
  __device__ void weigh_and_add(const Item& work, const SpanOf& span, int i, Softmax& softmax,
                                Output& o) {
    Weights p;
    float rescale[2];
    weigh(work, span, i, softmax, rescale, p);
#pragma unroll
    for (int j = 0; j < K::kDim / 2; ++j) o[j] *= rescale[j / 2 % 2];
    add_last(p, o);
  }

  // Starts the scores of tile i, then the output of the tile before. The softmax of tile i runs
  // beside that output.
  __device__ void add_and_weigh(const Item& work, const SpanOf& span, int i, Softmax& softmax,
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
    if (!span.full(i)) {
      hide<K::kKeys>(call_, lengths_of(call_, work), s, row_of(work), key_tile);
    }
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

  // Turns at the tensor cores: barrier 1 + w signals warpgroup w. Each warpgroup takes one turn at
  // every tile of an item, or at every tile but the first.
  __device__ static bool has_turn(int i) { return i > 0 || K::kTiles.first_turn; }
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
