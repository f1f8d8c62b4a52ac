// Attention, forward, without tensor cores: cuda.plain, which takes every call.
//
// The idea: the running softmax. A block takes a tile of 32 query rows and goes over the keys they
// may see, 32 at a time. For each row it keeps the largest score so far, the sum of exponentials
// relative to it, and the output sum; no score is ever stored.
//
//                  keys ->  32     32     32
//                +------+------+------+------+    A full tile needs no mask, a partial tile checks
//   32 rows:     | full | full | part | skip |    the mask for each pair, and a skipped tile is not
//   warp w has   | full | full | part | skip |    loaded. One place in shared memory holds first
//   four         +------+------+------+------+    the keys of a tile, then its values.
//
// Rows are converted to f32 as they are loaded, whatever their stored type: 8-bit codes too.
// Exponents have base 2, with the factor log2(e) folded into q.
//
// examples/learn teaches this in step 3 (the running softmax) and step 4 (tiles that a mask skips).
#include "core/type_switch.h"
#include "cuda/attention/plain/plain_tile.cuh"
#include "cuda/tile/codes.cuh"

namespace tessera::cuda {
namespace {

constexpr int kRowsOfWarp = 4;  // each element of a key in registers serves four rows
constexpr int kRows = kRowsOfWarp * kWarps;

// The rows of a tile, as queries and heads.
struct QueryRows {
  const AttentionCall& call;
  const Tile& tile;

  __device__ std::int64_t query(int r) const { return (tile.begin + r) / call.group; }
  __device__ std::int64_t head(int r) const {
    return tile.kv_head * call.group + (tile.begin + r) % call.group;
  }
};

// One row's softmax over the keys so far. `sum` covers only this lane's keys until the end.
struct Running {
  float largest = -INFINITY, sum = 0.f;
};

// From a score to a weight, for the row's 32 keys in the 32 lanes. `rescale` is the factor for the
// sums over earlier keys.
__device__ float update(Running& row, float score, bool visible, float* rescale) {
  const auto larger = [](float a, float b) { return fmaxf(a, b); };  // ignores a NaN
  const float largest = fmaxf(row.largest, warp_reduce(visible ? score : -INFINITY, larger));
  const float origin = largest == -INFINITY ? 0.f : largest;  // nothing seen: not inf - inf
  const float weight = visible ? exp2f(score - origin) : 0.f;
  *rescale = exp2f(row.largest - origin);
  row.largest = largest;
  row.sum = row.sum * *rescale + weight;
  return weight;
}

// The state that a warp carries from key to key for its rows.
template <int chunks>
struct WarpRows {
  Running running[kRowsOfWarp];
  float sums[kRowsOfWarp][chunks] = {};
};

// From the products of q and k to weights [rows, n] for keys [k0, k0 + n), a column in each lane,
// and to the bits of the keys that each row sees.
template <int chunks>
__device__ void find_weights(const QueryRows& rows, std::int64_t k0, int n, bool full,
                             WarpRows<chunks>& state, float (&weights)[kRowsOfWarp],
                             unsigned (&seen)[kRowsOfWarp]) {
  const AttentionCall& call = rows.call;
  const Sequence& s = rows.tile.sequence;
  const std::int64_t j = k0 + lane();
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r) {
    const int row = warp() + r * kWarps;
    const std::int64_t i = rows.query(row);
    const bool visible =
        row < rows.tile.size && lane() < n && (full || call.mask.allows(i, i + s.shift(), j));
    const float score = call.capped ? call.score_factor * tanhf(weights[r]) : weights[r];
    float rescale;
    weights[r] = update(state.running[r], score, visible, &rescale);
    if (call.dropping) weights[r] *= kept(call, s, rows.head(row), i, j);
    seen[r] = __ballot_sync(0xffffffffu, visible);
#pragma unroll
    for (int c = 0; c < chunks; ++c) state.sums[r][c] *= rescale;
  }
}

template <typename T, int chunks>
__device__ void store_rows(const QueryRows& rows, const WarpRows<chunks>& state) {
  const AttentionCall& call = rows.call;
  const Sequence& s = rows.tile.sequence;
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r) {
    const int row = warp() + r * kWarps;
    if (row >= rows.tile.size) continue;
    constexpr float kLn2 = 0.6931471805599453f;
    const std::int64_t i = rows.query(row), head = rows.head(row);
    const float sum = warp_reduce(state.running[r].sum, Sum());
    const bool nothing = sum == 0.f;
    store_row(call.query_row<T>(call.out, s, i, head), call.dim, nothing ? 0.f : 1.f / sum,
              state.sums[r]);
    if (call.lse != nullptr && lane() == 0) {
      *call.lse_at(s, i, head) =
          nothing ? -INFINITY : (state.running[r].largest + log2f(sum)) * kLn2;
    }
  }
}

// to [n, dim] = keys or values [k0, k0 + n), whatever their stored type.
template <typename T, int chunks>
__device__ void load_keys(const AttentionCall& call, const Tile& tile, const HeadRows& from,
                          const KeyScales& scales, std::int64_t k0, int n, float* to) {
  const auto load = [&](auto element, auto factor_of) {
    using Stored = decltype(element);
    load_scaled_rows<Stored, chunks, kTileRows>(to, n, call.dim, factor_of, [&](int j) {
      return call.key_row<const Stored>(from, tile.sequence, k0 + j, tile.kv_head);
    });
  };
  const auto scale_of = [&](int j) {
    return call.key_scale(scales, tile.sequence, k0 + j, tile.kv_head);
  };
  if (!call.has_codes()) {
    load(T{}, [](int) { return 1.f; });
  } else if (call.stored == DType::i8) {
    load(std::int8_t{}, scale_of);
  } else {
    load(E4M3{}, scale_of);
  }
}

template <typename T, int chunks>
__device__ void attend_tile(const AttentionCall& call, const Tile& tile, float* shared) {
  float* queries = shared;                         // [kRows, dim]
  float* keys = shared + kRows * kStride<chunks>;  // [kTileRows, dim]
  float* values = keys;                            // the same place
  const Sequence& s = tile.sequence;
  const QueryRows rows{call, tile};
  const bool idle = warp() >= tile.size;  // this warp has no rows, but loads keys with the others
  __syncthreads();                        // other warps may still read the last tile
  load_rows<T, chunks, kRows>(queries, tile.size, call.dim, call.q_factor, [&](int r) {
    return call.query_row<const T>(call.q, s, rows.query(r), rows.head(r));
  });

  WarpRows<chunks> state;
  const std::int64_t q0 = rows.query(0), q1 = rows.query(tile.size - 1) + 1;
  for (std::int64_t k = 0; (k = call.mask.next_visible(q0, q1, k, s.shift())) < s.n_k;) {
    const std::int64_t k0 = k / kTileRows * kTileRows;
    const int n = static_cast<int>(std::min<std::int64_t>(kTileRows, s.n_k - k0));
    const bool full = call.mask.classify(q0, q1, k0, k0 + n, s.shift()) == TileState::full;
    k = k0 + kTileRows;

    __syncthreads();  // other warps may still read the last values
    load_keys<T, chunks>(call, tile, call.k, call.k_scales, k0, n, keys);
    if (call.inv_freq != nullptr) rotate_rows<chunks>(call, keys, n, k0);
    __syncthreads();
    float weights[kRowsOfWarp];
    unsigned seen[kRowsOfWarp];
    if (!idle) {
      dot_rows<chunks>(queries, keys, call.dim, weights);
      find_weights(rows, k0, n, full, state, weights, seen);
    }

    __syncthreads();  // other warps may still read the keys
    load_keys<T, chunks>(call, tile, call.v, call.v_scales, k0, n, values);
    __syncthreads();
    if (!idle) add_weighted<chunks>(values, n, weights, seen, state.sums);
  }
  store_rows<T>(rows, state);
}

template <typename T, int chunks>
__global__ void __launch_bounds__(kThreads) attend(AttentionCall call, std::int64_t items) {
  float* shared = dynamic_shared<float>();
  const auto count = [&](const Sequence& s) { return s.n_q * call.group; };
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    Tile tile;
    if (!find_tile(call, item, kRows, count, &tile)) return;  // nor any item after it
    attend_tile<T, chunks>(call, tile, shared);
  }
}

}  // namespace

void launch_attention(Context& ctx, const AttentionCall& call) {
  const std::int64_t items = most_row_tiles(call, kRows);
  if (items == 0) return;
  const Launch launch(ctx, "attention");
  with_float_type(call.dtype, [&](auto type) {
    with_chunks(call.dim, [&](auto chunks) {
      const auto kernel = attend<decltype(type), chunks()>;
      const int bytes = row_bytes(kRows + kTileRows, kStride<chunks()>);
      launch(kernel, {.blocks = items, .threads = kThreads, .shared_bytes = bytes}, call, items);
    });
  });
}

}  // namespace tessera::cuda
