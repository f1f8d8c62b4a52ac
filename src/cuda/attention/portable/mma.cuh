// Attention, forward, by mma.sync: cuda.mma, any f16 or bf16 call on every GPU from sm_80 on.
//
// The idea: the running softmax on tensor cores. A block of four warps takes a tile of query rows
// and goes over the tiles of keys that they may see. For each row it keeps the largest score so
// far, the sum of weights relative to it, and the output sum. The plain kernel (plain/plain.cu) is
// the same loop without tensor cores; dense.cuh is a faster kernel for simple calls.
// key_tile_loop.cuh determines which tiles are visited.
//
//                          keys
//                 d  +------------+
//                    |    K^T     |     Warp w has 32 rows (16 where heads are wider than 128). Its
//          d         +------------+     scores S and outputs O stay in registers, in mma's layout:
//    +-----------+   +------------+     a row of a 16 x 8 piece lies in a quad of lanes. S comes
//  w0|    Q      |   |     S      |     out in the layout in which P goes in.
//  w1|           |   +------------+
//  w2| in shared |      P = exp2(S - largest), rounded to 16 bits
//  w3|  memory   |        +-----------+
//    +-----------+   keys |     V     |   O = O * rescale + P V
//                         +-----------+
//
// K and V have one buffer each in shared memory. A tile's values arrive while its scores are
// computed, and the next tile's keys arrive while P V is computed:
//
//   copies      K0 | V0     | K1              | V1     | K2
//   products         Q K0   |  softmax, P V0    Q K1   |  softmax, P V1
//
// examples/learn teaches this in step 5 (tensor cores), after step 3 (the running softmax).
#pragma once

#include "cuda/attention/call.h"
#include "cuda/attention/portable/coded_rows.cuh"
#include "cuda/attention/portable/fragments.cuh"
#include "cuda/attention/portable/key_tile_loop.cuh"
#include "cuda/attention/portable/shared_rows.cuh"
#include "cuda/attention/portable/tensor_core.h"
#include "cuda/runtime/dynamic_shared.cuh"
#include "cuda/runtime/launch.h"
#include "cuda/tile/thread_index.cuh"

namespace tessera::cuda::mma {

inline constexpr int kWarps = 4;
inline constexpr int kThreads = 32 * kWarps;

// A warp uses each element of K and V that it reads for two tiles of 16 rows. With heads wider than
// 128, the sums of two tiles would not fit into registers.
constexpr int row_tiles(int dim) { return dim <= 128 ? 2 : 1; }
// As many keys as there are registers for scores beside the sums; at 256 dims, as many as fit into
// 99 KB.
constexpr int keys_of_tile(int dim) { return dim <= 64 ? 128 : dim <= 128 ? 64 : 32; }
// The same where dropout, a softcap or the like need registers too.
constexpr int keys_of_rich_tile(int dim) { return dim <= 96 ? 64 : 32; }
constexpr int rows_of_block(int dim) { return 16 * row_tiles(dim) * kWarps; }

template <int dim, int keys>
struct Shared {
  static constexpr int kRowBytes = PaddedRows<dim>::kRowBytes;
  unsigned char q[rows_of_block(dim) * kRowBytes];  // the output at the end
  unsigned char k[keys * kRowBytes];
  unsigned char v[keys * kRowBytes];
  KeyRowTable<keys> rows[2];    // of this tile and of the next
  KeyFactors factors[2][keys];  // of codes
  // Read when needed, so that they take no registers from the sums.
  SmallSequence sequence;
  KeyTileLoop loops[kWarps + 1];        // of each warp's rows, and of the block's
  const void *first_key, *first_value;  // of the head
  int kv_head, begin, size;             // of the tile of rows

  __device__ QueryRows query_rows(const AttentionCall& call) const {
    return {call, sequence, kv_head, begin, size};
  }
};

__device__ inline int warp() { return static_cast<int>(threadIdx.x) / 32; }

// A warp writes its rows to their places in shared memory, and from there to `out` in whole chunks.
template <typename T, int dim>
__device__ void store(const QueryRows& rows, const WarpRows<row_tiles(dim), dim>& state,
                      unsigned char* shared, bool vectors) {
  using Rows = PaddedRows<dim>;
  constexpr int kWarpRows = 16 * row_tiles(dim);
  const AttentionCall& call = rows.call;
  const int lane = lane_of_warp(), first = warp() * kWarpRows;
#pragma unroll
  for (int m = 0; m < row_tiles(dim); ++m) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int row = first + state.row(m, side);
      const float sum = tile::quad_sum(state.sum[m][side]);
      const float factor = sum == 0.f ? 0.f : 1.f / sum;
#pragma unroll
      for (int n = 0; n < dim / 8; ++n) {
        *reinterpret_cast<std::uint32_t*>(shared + Rows::at(row, n) + 4 * (lane % 4)) =
            pack(factor * state.out[m][n][2 * side], factor * state.out[m][n][2 * side + 1], T());
      }
      if (call.lse != nullptr && lane % 4 == 0 && row < rows.size) {
        constexpr float kLn2 = 0.6931471805599453f;
        *call.lse_at(rows.sequence, rows.query(row), rows.head(row)) =
            sum == 0.f ? -INFINITY : (state.largest[m][side] + log2f(sum)) * kLn2;
      }
    }
  }
  __syncwarp();
#pragma unroll 1
  for (int i = lane; i < kWarpRows * Rows::kChunks; i += 32) {
    const int row = first + i / Rows::kChunks, chunk = i % Rows::kChunks;
    const int left = call.dim - 8 * chunk;
    if (row >= rows.size || left <= 0) continue;
    const unsigned char* from = shared + Rows::at(row, chunk);
    T* to = call.query_row<T>(call.out, rows.sequence, rows.query(row), rows.head(row)) + 8 * chunk;
    if (vectors) {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    } else {
      for (int e = 0; e < 8 && e < left; ++e) to[e] = reinterpret_cast<const T*>(from)[e];
    }
  }
}

template <typename T, int dim, int keys>
__device__ CodedRows<T, dim, keys, kThreads> coded_rows(const AttentionCall& call, bool vectors) {
  return {fresh_thread_index(), call.dim, call.stored, vectors};
}

// Starts the copies of a tile's keys or values, the rows that `at` names.
template <typename T, int dim, int keys, bool lean>
__device__ void load(const AttentionCall& call, bool vectors, unsigned char* to, const void* first,
                     const std::uint32_t* at) {
  const auto row_at = [&](int r) { return at[r]; };
  if (!lean && call.has_codes()) {
    coded_rows<T, dim, keys>(call, vectors).copy(to, first, row_at);
  } else {
    const RowCopy<dim, keys, kThreads> rows(fresh_thread_index(), call.dim);
    rows.copy(to, static_cast<const T*>(first), vectors, row_at);
  }
  close_copy_group();
}

template <typename T, int dim, int keys, bool lean>
__device__ void attend_tile(const AttentionCall& call, const KeyUnits& units,
                            Shared<dim, keys>& shared) {
  constexpr int kWarpRows = 16 * row_tiles(dim);
  const SmallSequence& s = shared.sequence;
  const auto load_keys = [&](int slot) {
    load<T, dim, keys, lean>(call, units.vectors, shared.k, shared.first_key, shared.rows[slot].k);
  };
  const auto load_values = [&](int slot) {
    load<T, dim, keys, lean>(call, units.vectors, shared.v, shared.first_value,
                             shared.rows[slot].v);
  };
  const bool codes = !lean && call.has_codes();
  const auto find_rows_of = [&](int slot, int k0) {
    const int key = static_cast<int>(threadIdx.x);
    if (codes && key < keys) {
      shared.factors[slot][key] = find_key_factors(call, units, s, shared.kv_head, k0 + key);
    }
    return shared.rows[slot].find(call, units, s, k0);
  };
  const auto expand = [&](unsigned char* rows) {
    if (codes) coded_rows<T, dim, keys>(call, units.vectors).expand(rows, [] { __syncthreads(); });
  };
  const ScoreScale scale{call};
  const int first = warp() * kWarpRows;
  const KeyTileLoop &loop = shared.loops[kWarps], &mine = shared.loops[warp()];

  WarpRows<row_tiles(dim), dim> state;
  state.clear();
  KeyTileLoop::Cursor cursor;
  int slot = 0, k0 = loop.next(0, keys, cursor);
  load_queries<dim, rows_of_block(dim), kThreads, T>(shared.q, call.dim, units.vectors, [&](int r) {
    const QueryRows rows = shared.query_rows(call);
    return r < rows.size ? call.query_row<const T>(call.q, s, rows.query(r), rows.head(r))
                         : nullptr;
  });
  close_copy_group();
  bool lost = k0 < loop.end && find_rows_of(0, k0);
  __syncthreads();
  if (k0 < loop.end) load_keys(0);
  while (k0 < loop.end) {
    wait_for_copies<0>();
    // The keys have arrived, and no thread still reads the last values.
    const bool some_lost = __syncthreads_or(lost ? 1 : 0) != 0;
    expand(shared.k);
    if (some_lost) {
      if (lost) lose_row<dim>(shared.k, static_cast<int>(threadIdx.x));
      __syncthreads();
    }
    load_values(slot);
    const int next = loop.next(k0 + keys, keys, cursor);
    lost = next < loop.end && find_rows_of(1 - slot, next);
    if (!lean && call.inv_freq != nullptr) {
      rotate_keys<dim, keys, T>(call, shared.k, k0, static_cast<int>(threadIdx.x), kThreads);
      __syncthreads();
    }
    const auto await_values = [&] {
      wait_for_copies<0>();
      __syncthreads();  // the values have arrived; no thread still reads the keys
      expand(shared.v);
      if (next < loop.end) load_keys(1 - slot);
    };
    if (first < shared.size && mine.visits(k0, keys)) {
      Scores<row_tiles(dim), keys> scores;
      multiply_keys<T, dim>(shared.q + first * PaddedRows<dim>::kRowBytes, shared.k, scores);
      await_values();
      if (codes) scale_columns(scores, [&](int c) { return shared.factors[slot][c].k; });
      if (!lean) scale.bend(scores);
      if (!mine.full(k0, keys)) hide(shared.query_rows(call), first, mine, k0, scores);
      if constexpr (lean) {
        take_in<T>(call.q_factor, scores, state, [&](int k, int n, std::uint32_t(&b)[4]) {
          const int lane = lane_of_warp();
          load_matrices_transposed(
              b, shared.v + PaddedRows<dim>::at(16 * k + lane % 16, 2 * n + lane / 16));
        });
      } else {
        update(scale.positive_factor(), scores, state);
        if (call.dropping) drop(shared.query_rows(call), first, k0, scores);
        if (codes) scale_columns(scores, [&](int c) { return shared.factors[slot][c].v; });
        multiply_values<T, dim>(scores, shared.v, state);
      }
    } else {
      await_values();
    }
    k0 = next;
    slot = 1 - slot;
  }
  wait_for_copies<0>();
  __syncthreads();  // no thread still reads queries
  store<T, dim>(shared.query_rows(call), state, shared.q, units.vectors);
}

// Finds tile `item` of the batch. The order is by sequence, then by head, so blocks that run at the
// same time share keys. The last rows of a head come first: under a causal mask they take longest.
// Returns false if there are fewer tiles. `leave_few`: the split kernel takes the sequences of few
// rows.
__device__ inline bool find_rows(const AttentionCall& call, int item, int tile_rows, bool leave_few,
                                 SmallSequence* s, int* kv_head, int* begin) {
  const int kv_heads = static_cast<int>(call.kv_heads), group = static_cast<int>(call.group);
  int index = 0;
  if (call.q_offsets == nullptr) {  // all sequences are equally long: no search
    const int rows = static_cast<int>(call.n_q) * group;
    const int tiles = kv_heads * ((rows + tile_rows - 1) / tile_rows);
    index = item / tiles;
    item %= tiles;
  }
  for (; index < call.sequences; ++index) {
    *s = SmallSequence::of(call, index);
    const int rows = s->n_q * group;
    const int tiles = leave_few && rows <= kFewRows ? 0 : (rows + tile_rows - 1) / tile_rows;
    if (item < kv_heads * tiles) {
      *kv_head = item / tiles;
      *begin = (tiles - 1 - item % tiles) * tile_rows;
      return true;
    }
    item -= kv_heads * tiles;
  }
  return false;
}

template <typename T, int dim, int keys, bool lean>
__global__ void __launch_bounds__(kThreads, 2)
    attend(AttentionCall call, TensorCoreOptions options) {
  constexpr int kRows = rows_of_block(dim);
  auto& shared = *dynamic_shared<Shared<dim, keys>>();
  SmallSequence s;
  int kv_head, begin;
  const int item = static_cast<int>(blockIdx.x);
  if (!find_rows(call, item, kRows, options.leave_few, &s, &kv_head, &begin)) return;
  const int size = std::min(kRows, s.n_q * static_cast<int>(call.group) - begin);
  const QueryRows rows{call, shared.sequence, kv_head, begin, size};
  if (const int t = static_cast<int>(threadIdx.x); t <= kWarps) {
    const bool all = t == kWarps;
    const int first = all ? 0 : std::min(t * kRows / kWarps, size - 1);
    const int last = std::min(first + (all ? kRows : kRows / kWarps), size) - 1;
    shared.loops[t].start(
        call.mask, s, rows.query(first), rows.query(last),
        KeyTileLoop::lie_in_one_row(call.mask, rows.query(0), rows.query(size - 1), keys));
    if (all) {
      shared.sequence = s;
      const auto first_row = [&](const HeadRows& of) -> const void* {
        if (!lean && call.has_codes()) return of.at<const std::uint8_t>(0, 0, kv_head);
        return of.at<const T>(0, 0, kv_head);
      };
      shared.first_key = first_row(call.k);
      shared.first_value = first_row(call.v);
      shared.kv_head = kv_head;
      shared.begin = begin;
      shared.size = size;
    }
  }
  __syncthreads();
  attend_tile<T, dim, keys, lean>(call, options.units, shared);
}

template <typename T, int dim, int keys, bool lean>
void launch_tiles(Context& ctx, const AttentionCall& call, const TensorCoreOptions& options) {
  const std::int64_t items = most_row_tiles(call, rows_of_block(dim));
  if (items == 0) return;
  const Launch start(ctx, "attention");
  constexpr int kBytes = static_cast<int>(sizeof(Shared<dim, keys>));
  start(attend<T, dim, keys, lean>, {.blocks = items, .threads = kThreads, .shared_bytes = kBytes},
        call, options);
}

template <typename T, int dim>
void launch(Context& ctx, const AttentionCall& call, const TensorCoreOptions& options) {
  constexpr int kKeys = keys_of_tile(dim), kSmall = std::min(64, kKeys);
  if (!is_lean(call))
    return launch_tiles<T, dim, keys_of_rich_tile(dim), false>(ctx, call, options);
  // Only whole tiles are skipped. Where a pattern's blocks are not multiples of a tile, smaller
  // tiles skip more.
  if (call.mask.kind == Mask::Kind::blocks && call.mask.block % kKeys != 0) {
    return launch_tiles<T, dim, kSmall, true>(ctx, call, options);
  }
  launch_tiles<T, dim, kKeys, true>(ctx, call, options);
}

}  // namespace tessera::cuda::mma
