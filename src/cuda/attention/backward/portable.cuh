// The gradients of attention by mma.sync: cuda.mma of attention_backward(), f16 and bf16 on every
// GPU from sm_80 on, any mask and layout. The weights are not kept from the forward pass: each tile
// computes them again from its scores and the log-sum-exp of its rows.
//
//   P  = 2^(S - exponent)     with dropout, P' = keep P
//   dS = P (keep dP - delta)  times the slope of the softcap
//
// Two kernels of one shape, so that one warp sums a gradient in one order, without atomics: the
// same bits every time. A block has some rows of its own, of two tensors, and goes over tiles of 32
// other rows. Query rows include all heads that share a key head (call.h), so the gradients of a
// shared key are summed in place.
//
//                 own rows    other rows   first product  second product   sums
//   Side::queries  Q, dO       K, V         S   = Q K^T    dP   = dO V^T    dQ += dS K
//   Side::keys     K, V        Q, dO        S^T = K Q^T    dP^T = V dO^T    dK += dS^T Q,
//                                                                           dV += P'^T dO
//
// That is seven products where five would do, but it needs no sums in memory and no ordering
// between blocks.
//
// Other rows have two buffers, so that the next tile arrives while this one is multiplied. One bit
// tells whether a row sees a key, another whether dropout keeps its weight. The whole block finds
// these bits for the tiles that need them, 32 keys of a row to a thread.
//
// examples/learn has no gradients. Step 5 teaches the instruction (tensor cores).
#pragma once

#include <climits>
#include <cstdint>

#include "cuda/attention/backward/portable_call.h"
#include "cuda/attention/backward/portable_tile.cuh"
#include "cuda/attention/backward/portable_warp.cuh"
#include "cuda/attention/portable/shared_rows.cuh"
#include "cuda/runtime/dynamic_shared.cuh"
#include "cuda/runtime/launch.h"

namespace tessera::cuda::backward {

// Finds tile `item`. Tiles that take longest under a causal mask come first in their head: the
// first keys, the last queries. Returns false if there are fewer tiles.
template <Side side>
__device__ bool find_own(const AttentionCall& call, int item, int tile, SmallSequence* s,
                         int* kv_head, int* begin) {
  const int kv_heads = static_cast<int>(call.kv_heads), group = static_cast<int>(call.group);
  const auto tiles_of_sequence = [&] {
    const int rows = side == Side::queries ? s->n_q * group : s->n_k;
    return (rows + tile - 1) / tile;
  };
  int index = 0;
  if (call.q_offsets == nullptr) {  // all sequences are equally long: no search
    *s = SmallSequence::of(call, 0);
    index = item / (kv_heads * tiles_of_sequence());
    item %= kv_heads * tiles_of_sequence();
  }
  for (; index < call.sequences; ++index) {
    *s = SmallSequence::of(call, index);
    const int tiles = tiles_of_sequence();
    if (item < kv_heads * tiles) {
      *kv_head = item / tiles;
      const int turn = item % tiles;
      *begin = (side == Side::queries ? tiles - 1 - turn : turn) * tile;
      return true;
    }
    item -= kv_heads * tiles;
  }
  return false;
}

template <typename W, int dim, Side side>
__device__ void visit_tiles(const AttentionCall& call, const PortableGradients& gradients,
                            Shared<dim>& shared, W& warp) {
  using T = typename W::T;
  constexpr bool kQueries = side == Side::queries;
  const SmallSequence& s = shared.sequence;
  const Place<const T> place{call, s, shared.kv_head};
  const int begin = shared.begin, size = shared.size;
  const int n_rows = s.n_q * static_cast<int>(call.group);
  const int thread = static_cast<int>(threadIdx.x);
  const RowTileLoop rows(call, s, kQueries ? 0 : begin, kQueries ? 0 : begin + size - 1);
  KeyTileLoop::Cursor cursor;
  const auto next_from = [&](int from) {
    if constexpr (kQueries) return shared.loop.next(from, kOther, cursor);
    return rows.next(from);
  };
  const auto load = [&](int to, int first) {
    load_queries<dim, kOther, kThreads, T>(
        shared.other[to][0], call.dim, gradients.vectors, [&](int r) -> const T* {
          if constexpr (kQueries) {
            return first + r < s.n_k ? place.key(call.k, first + r) : nullptr;
          }
          return first + r < n_rows ? place.query(call.q, first + r) : nullptr;
        });
    load_queries<dim, kOther, kThreads, T>(
        shared.other[to][1], call.dim, gradients.vectors, [&](int r) -> const T* {
          if constexpr (kQueries) {
            return first + r < s.n_k ? place.key(call.v, first + r) : nullptr;
          }
          return first + r < n_rows ? place.query(gradients.d_out, first + r) : nullptr;
        });
  };
  // The exponents of other rows, or their deltas: one number to a thread. They are loaded to
  // registers, and stored after the products that run meanwhile.
  const auto value = [&](int first) {
    const int r = first + thread % kOther;
    if (kQueries || thread >= 2 * kOther) return 0.f;
    if (r >= n_rows) return thread < kOther ? INFINITY : 0.f;
    const std::int64_t at = value_at(call, gradients.values, s, shared.kv_head, r);
    return thread < kOther ? gradients.values.exponent[at] : gradients.values.delta[at];
  };
  const auto put_down = [&](int to, float x) {
    if (kQueries || thread >= 2 * kOther) return;
    (thread < kOther ? shared.exponent : shared.delta)[to][thread % kOther] = x;
  };

  int at = next_from(0), stage = 0;
  if (at != INT_MAX) {
    load(0, at);
    put_down(0, value(at));
  }
  close_copy_group();
  while (at != INT_MAX) {
    const int next = next_from(at + kOther);
    float next_value = 0.f;
    if (next != INT_MAX) {
      load(1 - stage, next);
      next_value = value(next);
    }
    close_copy_group();
    bool checked = call.dropping;
    if constexpr (kQueries) {
      checked = checked || !shared.loop.full(at, kOther);
    } else {
      checked = checked || rows.state(at) != TileState::full;
    }
    if (checked) find_bits<dim, side>(call, shared, kQueries ? begin : at, kQueries ? at : begin);
    wait_for_copies<1>();
    __syncthreads();
    warp.visit(call, shared, stage, checked);
    put_down(1 - stage, next_value);
    __syncthreads();  // no thread still reads this tile and its bits
    at = next;
    stage = 1 - stage;
  }
  wait_for_copies<0>();
}

template <typename T, int dim, Side side, bool rich>
__global__ void __launch_bounds__(kThreads, 2)
    sum_up(AttentionCall call, PortableGradients gradients) {
  constexpr int kOwn = own_rows(dim);
  constexpr bool kQueries = side == Side::queries;
  auto& shared = *dynamic_shared<Shared<dim>>();
  SmallSequence s;
  int kv_head, begin;
  if (!find_own<side>(call, static_cast<int>(blockIdx.x), kOwn, &s, &kv_head, &begin)) return;
  const int group = static_cast<int>(call.group);
  const int size = std::min(kOwn, (kQueries ? s.n_q * group : s.n_k) - begin);
  if (threadIdx.x == 0) {
    const int first = kQueries ? begin / group : 0;
    const int last = kQueries ? (begin + size - 1) / group : s.n_q - 1;
    shared.loop.start(call.mask, s, first, last,
                      kQueries && KeyTileLoop::lie_in_one_row(call.mask, first, last, kOther));
    shared.sequence = s;
    shared.kv_head = kv_head;
    shared.begin = begin;
    shared.size = size;
  }
  __syncthreads();

  const Place<const T> from{call, shared.sequence, kv_head};
#pragma unroll 1
  for (int tensor = 0; tensor < 2; ++tensor) {
    const HeadRows& rows =
        kQueries ? (tensor == 0 ? call.q : gradients.d_out) : (tensor == 0 ? call.k : call.v);
    load_queries<dim, kOwn, kThreads, T>(
        shared.own[tensor], call.dim, gradients.vectors, [&](int r) -> const T* {
          if (r >= size) return nullptr;
          return kQueries ? from.query(rows, begin + r) : from.key(rows, begin + r);
        });
  }
  using W = Warp<T, dim, side, rich>;
  W warp;
  if constexpr (kQueries) {
#pragma unroll
    for (int m = 0; m < W::kTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int r = W::row(m, half);
        const bool there = r < size;
        const std::int64_t at = there ? value_at(call, gradients.values, s, kv_head, begin + r) : 0;
        warp.exponent[m][half] = there ? gradients.values.exponent[at] : INFINITY;
        warp.delta[m][half] = there ? gradients.values.delta[at] : 0.f;
      }
    }
  }
  visit_tiles<W, dim, side>(call, gradients, shared, warp);

  const Place<T> to{call, shared.sequence, kv_head};
  if constexpr (kQueries) {
    W::store(warp.first_sum, call.scale, size, call.dim, gradients.vectors,
             [&](int r) { return to.query(gradients.d_q, begin + r); });
  } else {
    W::store(warp.first_sum, call.scale, size, call.dim, gradients.vectors,
             [&](int r) { return to.key(gradients.d_k, begin + r); });
    W::store(warp.second_sum, 1.f, size, call.dim, gradients.vectors,
             [&](int r) { return to.key(gradients.d_v, begin + r); });
  }
}

template <typename T, int dim, Side side>
void launch_side(Context& ctx, const AttentionCall& call, const PortableGradients& gradients,
                 std::int64_t items) {
  if (items == 0) return;
  const Launch launch(
      ctx, side == Side::queries ? "attention_backward (queries)" : "attention_backward (keys)");
  const Grid grid{.blocks = items,
                  .threads = dim3(kThreads),
                  .shared_bytes = static_cast<int>(sizeof(Shared<dim>))};
  if (call.capped || call.dropping) {
    launch(sum_up<T, dim, side, true>, grid, call, gradients);
  } else {
    launch(sum_up<T, dim, side, false>, grid, call, gradients);
  }
}

template <typename T, int dim>
void launch_portable(Context& ctx, const AttentionCall& call, const PortableGradients& gradients) {
  launch_side<T, dim, Side::queries>(ctx, call, gradients, most_row_tiles(call, own_rows(dim)));
  launch_side<T, dim, Side::keys>(ctx, call, gradients, most_key_tiles(call, own_rows(dim)));
}

}  // namespace tessera::cuda::backward
