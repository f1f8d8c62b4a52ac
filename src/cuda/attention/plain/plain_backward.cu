// Gradients of attention. The weights are not kept from the forward pass: each tile computes them
// again from its scores and the log-sum-exp of its rows.
//
//   P  = 2^(S - lse)          with dropout, P' = keep P
//   dP = keep (dO V^T)        delta = rowsum(dO O) = rowsum(P dP)
//   dS = P (dP - delta)       times the slope of the softcap
//
// Two kernels, so that every gradient is summed by one warp in one order, with no atomics:
//
//   1. a block has 16 query rows,           2. a block has 16 keys,
//      goes over tiles of 32 keys              goes over tiles of 32 query rows
//            k k k k                                k
//      q --> . . . .   dQ += dS K                q  .
//      q     . . . .   delta, for kernel 2       q  .   dV += P'^T dO
//      q     . . . .                             q  v   dK += dS^T Q
#include "core/type_switch.h"
#include "cuda/attention/plain/plain_tile.cuh"

namespace tessera::cuda {
namespace {

constexpr int kRowsOfWarp = 2;               // two kinds of rows, and at most two gradients of each
constexpr int kRows = kRowsOfWarp * kWarps;  // 16 rows of each kind, and tiles of 32: 99 KB

// One query of one head: the values that its pairs need.
struct Row {
  std::int64_t i, head;
  float exponent;  // lse in base 2, +inf if nothing is visible: 2^(s - inf) = 0
  float delta;
};

__device__ Row row_at(const AttentionCall& call, const Tile& tile, std::int64_t r) {
  constexpr float kLog2e = 1.4426950408889634f;
  Row row{r / call.group, tile.kv_head * call.group + r % call.group, 0.f, 0.f};
  const float lse = *call.lse_at(tile.sequence, row.i, row.head);
  row.exponent = lse == -INFINITY ? INFINITY : lse * kLog2e;
  return row;
}

__device__ float* delta_at(const AttentionCall& call, const AttentionGradients& gradients,
                           const Sequence& s, const Row& row) {
  return gradients.delta + ((s.q_batch * call.n_q + s.q_begin + row.i) * call.heads + row.head);
}

struct Pair {
  float weight;   // P'
  float d_score;  // dS
};

// Computes a pair from its two products: q k (times q_factor) and dO v.
__device__ Pair pair_of(const AttentionCall& call, const Sequence& s, const Row& row,
                        std::int64_t j, float product, float d_weight) {
  float score = product, slope = 1.f;
  if (call.capped) {
    const float tanh = tanhf(product);
    score = call.score_factor * tanh;
    slope = 1.f - tanh * tanh;
  }
  const float weight = exp2f(score - row.exponent);
  const float keep = call.dropping ? kept(call, s, row.head, row.i, j) : 1.f;
  return {weight * keep, weight * (keep * d_weight - row.delta) * slope};
}

// ---- 1. queries ---------------------------------------------------------------------------------

// rowsum(dO O), where dO is in shared memory.
template <typename T, int chunks>
__device__ float find_delta(const float* d_out, const T* out, int dim) {
  float sum = 0.f;
#pragma unroll
  for (int c = 0; c < chunks; ++c) {
    const int d = lane() + c * kWarp;
    if (d < dim) sum = fmaf(d_out[d], to_f32(out[d]), sum);
  }
  return warp_reduce(sum, Sum());
}

template <typename T, int chunks>
__device__ void visit_queries(const AttentionCall& call, const AttentionGradients& gradients,
                              const Tile& tile, float* shared) {
  float* queries = shared;                           // [kRows, dim]
  float* d_out = queries + kRows * kStride<chunks>;  // [kRows, dim]
  float* keys = d_out + kRows * kStride<chunks>;     // [kTileRows, dim]
  float* values = keys;                              // the same place
  const Sequence& s = tile.sequence;
  const auto load_queries = [&](const HeadRows& from, float factor, float* to) {
    load_rows<T, chunks, kRows>(to, tile.size, call.dim, factor, [&](int r) {
      const std::int64_t row = tile.begin + r;
      return call.query_row<const T>(from, s, row / call.group,
                                     tile.kv_head * call.group + row % call.group);
    });
  };
  __syncthreads();  // other warps may still read the last tile
  load_queries(call.q, call.q_factor, queries);
  load_queries(gradients.d_out, 1.f, d_out);
  __syncwarp();  // a warp's own rows are those it loaded

  Row rows[kRowsOfWarp];
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r) {
    const int at = warp() + r * kWarps;
    if (at >= tile.size) continue;
    rows[r] = row_at(call, tile, tile.begin + at);
    rows[r].delta = find_delta<T, chunks>(
        d_out + at * kStride<chunks>, call.query_row<const T>(call.out, s, rows[r].i, rows[r].head),
        call.dim);
    if (lane() == 0) *delta_at(call, gradients, s, rows[r]) = rows[r].delta;
  }

  float d_q[kRowsOfWarp][chunks] = {};
  const std::int64_t q0 = tile.begin / call.group;
  const std::int64_t q1 = (tile.begin + tile.size - 1) / call.group + 1;
  for (std::int64_t k = 0; (k = call.mask.next_visible(q0, q1, k, s.shift())) < s.n_k;) {
    const std::int64_t k0 = k / kTileRows * kTileRows;
    const int n = static_cast<int>(std::min<std::int64_t>(kTileRows, s.n_k - k0));
    const bool full = call.mask.classify(q0, q1, k0, k0 + n, s.shift()) == TileState::full;
    k = k0 + kTileRows;
    const auto load_keys = [&](const HeadRows& from, float* to) {
      __syncthreads();  // other warps may still read the old rows
      load_rows<T, chunks, kTileRows>(to, n, call.dim, 1.f, [&](int j) {
        return call.key_row<const T>(from, s, k0 + j, tile.kv_head);
      });
      __syncthreads();
    };

    float d_weights[kRowsOfWarp], products[kRowsOfWarp], d_scores[kRowsOfWarp];
    unsigned seen[kRowsOfWarp];
    load_keys(call.v, values);
    dot_rows<chunks>(d_out, values, call.dim, d_weights);
    load_keys(call.k, keys);
    dot_rows<chunks>(queries, keys, call.dim, products);
#pragma unroll
    for (int r = 0; r < kRowsOfWarp; ++r) {
      const std::int64_t i = rows[r].i, j = k0 + lane();
      const bool visible = warp() + r * kWarps < tile.size && lane() < n &&
                           (full || call.mask.allows(i, i + s.shift(), j));
      d_scores[r] = visible ? pair_of(call, s, rows[r], j, products[r], d_weights[r]).d_score : 0.f;
      seen[r] = __ballot_sync(0xffffffffu, visible);
    }
    add_weighted<chunks>(keys, n, d_scores, seen, d_q);
  }

#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r) {
    if (warp() + r * kWarps >= tile.size) continue;
    store_row(call.query_row<T>(gradients.d_q, s, rows[r].i, rows[r].head), call.dim, call.scale,
              d_q[r]);
  }
}

// ---- 2. keys ------------------------------------------------------------------------------------

template <typename T, int chunks>
__device__ void visit_keys(const AttentionCall& call, const AttentionGradients& gradients,
                           const Tile& tile, float* shared) {
  float* keys = shared;                                  // [kRows, dim]
  float* values = keys + kRows * kStride<chunks>;        // [kRows, dim]
  float* queries = values + kRows * kStride<chunks>;     // [kTileRows, dim]
  float* d_out = queries + kTileRows * kStride<chunks>;  // [kTileRows, dim]
  const Sequence& s = tile.sequence;
  const auto load_keys = [&](const HeadRows& from, float* to) {
    load_rows<T, chunks, kRows>(to, tile.size, call.dim, 1.f, [&](int j) {
      return call.key_row<const T>(from, s, tile.begin + j, tile.kv_head);
    });
  };
  __syncthreads();  // other warps may still read the last tile
  load_keys(call.k, keys);
  load_keys(call.v, values);

  float d_k[kRowsOfWarp][chunks] = {}, d_v[kRowsOfWarp][chunks] = {};
  const std::int64_t k0 = tile.begin, k1 = tile.begin + tile.size;
  const std::int64_t n_rows = s.n_q * call.group;
  for (std::int64_t r0 = 0; r0 < n_rows; r0 += kTileRows) {
    const int n = static_cast<int>(std::min<std::int64_t>(kTileRows, n_rows - r0));
    const TileState state =
        call.mask.classify(r0 / call.group, (r0 + n - 1) / call.group + 1, k0, k1, s.shift());
    if (state == TileState::skip) continue;
    const auto load_queries = [&](const HeadRows& from, float factor, float* to) {
      load_rows<T, chunks, kTileRows>(to, n, call.dim, factor, [&](int r) {
        return call.query_row<const T>(from, s, (r0 + r) / call.group,
                                       tile.kv_head * call.group + (r0 + r) % call.group);
      });
    };
    __syncthreads();  // other warps may still read the last queries
    load_queries(call.q, call.q_factor, queries);
    load_queries(gradients.d_out, 1.f, d_out);
    __syncthreads();

    Row row = row_at(call, tile, r0 + std::min(lane(), n - 1));  // this lane's
    row.delta = *delta_at(call, gradients, s, row);
    float products[kRowsOfWarp], d_weights[kRowsOfWarp];
    dot_rows<chunks>(keys, queries, call.dim, products);
    dot_rows<chunks>(values, d_out, call.dim, d_weights);
    float weights[kRowsOfWarp], d_scores[kRowsOfWarp];
    unsigned seen[kRowsOfWarp];
#pragma unroll
    for (int r = 0; r < kRowsOfWarp; ++r) {
      const int at = warp() + r * kWarps;
      const std::int64_t j = k0 + at;
      const bool visible =
          at < tile.size && lane() < n &&
          (state == TileState::full || call.mask.allows(row.i, row.i + s.shift(), j));
      const Pair pair = visible ? pair_of(call, s, row, j, products[r], d_weights[r]) : Pair{};
      weights[r] = pair.weight;
      d_scores[r] = pair.d_score;
      seen[r] = __ballot_sync(0xffffffffu, visible);
    }
    add_weighted<chunks>(d_out, n, weights, seen, d_v);
    add_weighted<chunks>(queries, n, d_scores, seen, d_k);
  }

#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r) {
    const int at = warp() + r * kWarps;
    if (at >= tile.size) continue;
    const std::int64_t j = k0 + at;
    // The queries have q_factor folded in, but the gradient needs scale.
    store_row(call.key_row<T>(gradients.d_k, s, j, tile.kv_head), call.dim,
              call.scale / call.q_factor, d_k[r]);
    store_row(call.key_row<T>(gradients.d_v, s, j, tile.kv_head), call.dim, 1.f, d_v[r]);
  }
}

// ---- kernels ------------------------------------------------------------------------------------

template <typename T, int chunks>
__global__ void __launch_bounds__(kThreads)
    query_gradients(AttentionCall call, AttentionGradients gradients, std::int64_t items) {
  float* shared = dynamic_shared<float>();
  const auto count = [&](const Sequence& s) { return s.n_q * call.group; };
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    Tile tile;
    if (!find_tile(call, item, kRows, count, &tile)) return;
    visit_queries<T, chunks>(call, gradients, tile, shared);
  }
}

template <typename T, int chunks>
__global__ void __launch_bounds__(kThreads)
    key_gradients(AttentionCall call, AttentionGradients gradients, std::int64_t items) {
  float* shared = dynamic_shared<float>();
  const auto count = [](const Sequence& s) { return s.n_k; };
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    Tile tile;
    if (!find_tile(call, item, kRows, count, &tile)) return;
    visit_keys<T, chunks>(call, gradients, tile, shared);
  }
}

template <typename Kernel>
void launch_tiles(Context& ctx, const char* name, Kernel* kernel, std::int64_t items, int bytes,
                  const AttentionCall& call, const AttentionGradients& gradients) {
  if (items == 0) return;
  const Launch launch(ctx, name);
  launch(kernel, {.blocks = items, .threads = kThreads, .shared_bytes = bytes}, call, gradients,
         items);
}

}  // namespace

void launch_attention_backward(Context& ctx, const AttentionCall& call,
                               const AttentionGradients& gradients) {
  const DeviceGuard guard(ctx.device());
  with_float_type(call.dtype, [&](auto type) {
    with_chunks(call.dim, [&](auto chunks) {
      constexpr int kFloats = kStride<chunks()>;
      const auto queries = query_gradients<decltype(type), chunks()>;
      launch_tiles(ctx, "attention_backward (queries)", queries, most_row_tiles(call, kRows),
                   row_bytes(2 * kRows + kTileRows, kFloats), call, gradients);
      const auto keys = key_gradients<decltype(type), chunks()>;
      launch_tiles(ctx, "attention_backward (keys)", keys, most_key_tiles(call, kRows),
                   row_bytes(2 * kRows + 2 * kTileRows, kFloats), call, gradients);
    });
  });
}

}  // namespace tessera::cuda
