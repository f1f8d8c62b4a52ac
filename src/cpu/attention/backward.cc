// Gradients of attention. The forward pass does not keep the weights. Each tile computes them again
// from its scores and the log-sum-exp of its rows, so memory grows with the sequence, not with its
// square.
//
//   P  = 2^(S - lse)          with dropout, P' = keep P
//   dP = keep (dO V^T)        delta = rowsum(dO O) = rowsum(P dP)
//   dS = P (dP - delta)       times the slope of the softcap
//
// There are two passes, so that each gradient is summed by one thread in one order, without
// atomics:
//
//   1. a tile of queries loops over keys    2. a tile of keys loops over queries
//            k k k k                                k
//      q --> . . . .   dQ += dS K                q  .
//      q     . . . .   delta, for pass 2         q  .   dV += P'^T dO
//      q     . . . .                             q  v   dK += dS^T Q
//
// Both passes put queries in rows and keys in lanes, so that all steps up to dS are the same.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "core/checked.h"
#include "core/thread_pool.h"
#include "core/type_switch.h"
#include "core/workspace.h"
#include "cpu/attention/attention.h"
#include "cpu/attention/work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attention/backward.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After highway.h.
#include "cpu/attention/softmax-inl.h"
#include "cpu/attention/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

// One thread's tiles. width is dim in whole vectors, rows the query tile's rows in whole blocks.
struct Scratch {
  Scratch(Carver& carver, std::int64_t rows, std::int64_t width)
      : q(carver.take(rows * width)),
        d_out(carver.take(rows * width)),
        exponent(carver.take(rows)),
        delta(carver.take(rows)),
        key_rows(carver.take(kKeyTile * width)),
        keys_t(carver.take(width * kKeyTile)),
        values_t(carver.take(width * kKeyTile)),
        weights(carver.take(kStripRows * kKeyTile)),
        d_scores(carver.take(kStripRows * kKeyTile)),
        slope(carver.take(kStripRows * kKeyTile)),
        sum(carver.take(rows * width)),
        d_k(carver.take(kKeyTile * width)),
        d_v(carver.take(kKeyTile * width)) {}

  float *q, *d_out;                   // [rows, width]; q with the scale folded in
  float *exponent, *delta;            // [rows]: lse in base 2, +inf where nothing is visible
  float* key_rows;                    // [kKeyTile, width]
  float *keys_t, *values_t;           // [width, kKeyTile]
  float *weights, *d_scores, *slope;  // [kStripRows, kKeyTile]
  float* sum;                         // [rows, width]: pass 1, d_q
  float *d_k, *d_v;                   // [kKeyTile, width]: pass 2
};

struct Pass {
  const AttentionBackwardArgs& grads;
  const AttentionCall& call;
  std::int64_t width;
  float* delta;  // [queries of all sequences, heads]

  // Row of delta for query i of a sequence.
  float* delta_at(const Sequence& s, std::int64_t i, std::int64_t head) const {
    const std::int64_t row = s.q_batch * call.args.q.shape[1] + s.q_begin + i;
    return delta + row * call.heads + head;
  }
};

// ---- loading -----------------------------------------------------------------------------------

// Loads queries, output gradients and the log-sum-exp of each row.
template <typename T>
void load_query_tile(const Pass& pass, const QueryTile& tile, const Scratch& scratch) {
  const AttentionCall& call = pass.call;
  load_queries<T>(call.args.q, tile, call.dim, call.q_factor, pass.width, scratch.q);
  load_queries<T>(pass.grads.d_out, tile, call.dim, 1.0f, pass.width, scratch.d_out);
  for (std::int64_t r = 0; r < tile.rows(); ++r) {
    const float lse = *lse_at(call.args.lse, tile.sequence, tile.query(r), tile.head(r));
    // 2^(s - inf) = 0: a row that saw nothing has no weights.
    scratch.exponent[r] =
        lse == kMinusInfinity ? -kMinusInfinity : lse * std::numbers::log2e_v<float>;
  }
}

// Loads keys_t and values_t. The keys also stay in key_rows.
template <typename T>
void load_key_tile(const Pass& pass, const Sequence& s, std::int64_t kv_head, std::int64_t k0,
                   std::int64_t n, const Scratch& scratch) {
  const AttentionArgs& args = pass.call.args;
  const auto load = [&](const Tensor& tensor, float* transposed) HWY_ATTR {
    const T* rows[kKeyTile];
    point_at_keys(args, tensor, s, kv_head, k0, n, rows);
    load_rows(rows, n, pass.call.dim, 1.0f, pass.width, scratch.key_rows);
    std::fill(scratch.key_rows + n * pass.width, scratch.key_rows + padded(n) * pass.width, 0.0f);
    transpose(scratch.key_rows, padded(n), pass.width, transposed);
  };
  load(args.v, scratch.values_t);
  load(args.k, scratch.keys_t);
}

// delta [rows] = rowsum(dO O), kept in scratch and stored for pass 2.
template <typename T>
void find_delta(const Pass& pass, const QueryTile& tile, const Scratch& scratch) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t r = 0; r < tile.rows(); ++r) {
    const std::int64_t i = tile.query(r), head = tile.head(r);
    const T* out = query_row<const T>(pass.call.args.out, tile.sequence, i, head);
    auto sum = hn::Zero(d);
    for (std::int64_t at = 0; at < pass.call.dim; at += lanes) {
      const std::size_t count = static_cast<std::size_t>(std::min(lanes, pass.call.dim - at));
      sum = hn::MulAdd(hn::Load(d, scratch.d_out + r * pass.width + at),
                       load_f32_up_to(d, out + at, count), sum);
    }
    scratch.delta[r] = hn::GetLane(hn::SumOfLanes(d, sum));
    *pass.delta_at(tile.sequence, i, head) = scratch.delta[r];
  }
}

// ---- one strip of queries x keys ---------------------------------------------------------------

// The slope of the softcap. Scores are c tanh(x), so the slope is 1 - (score / c)^2. A hidden
// score, -inf, gets 0.
void find_slope(float score_factor, std::int64_t rows, std::int64_t n, const float* s,
                float* slope) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t r = 0; r < rows; ++r, s += kKeyTile, slope += kKeyTile) {
    for (std::int64_t j = 0; j < n; j += lanes) {
      const auto tanh = hn::Mul(hn::Load(d, s + j), hn::Set(d, 1.0f / score_factor));
      const auto rest = hn::NegMulAdd(tanh, tanh, hn::Set(d, 1.0f));
      hn::Store(hn::Max(hn::Zero(d), rest), d, slope + j);
    }
  }
}

// weights = 2^(scores - exponent)
void find_weights(const float* exponent, std::int64_t rows, std::int64_t n, float* s) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t r = 0; r < rows; ++r, s += kKeyTile) {
    for (std::int64_t j = 0; j < n; j += lanes) {
      hn::Store(exp2(hn::Sub(hn::Load(d, s + j), hn::Set(d, exponent[r]))), d, s + j);
    }
  }
}

// d_scores = weights (d_weights - delta), overwriting d_weights.
void find_d_scores(const float* weights, const float* delta, std::int64_t rows, std::int64_t n,
                   float* d_weights) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t r = 0; r < rows; ++r, weights += kKeyTile, d_weights += kKeyTile) {
    for (std::int64_t j = 0; j < n; j += lanes) {
      const auto centred = hn::Sub(hn::Load(d, d_weights + j), hn::Set(d, delta[r]));
      hn::Store(hn::Mul(hn::Load(d, weights + j), centred), d, d_weights + j);
    }
  }
}

void multiply_elements(const float* by, std::int64_t rows, std::int64_t n, float* s) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t r = 0; r < rows; ++r, s += kKeyTile, by += kKeyTile) {
    for (std::int64_t j = 0; j < n; j += lanes) {
      hn::Store(hn::Mul(hn::Load(d, s + j), hn::Load(d, by + j)), d, s + j);
    }
  }
}

// Computes the weights before dropout, and d_scores.
void visit_strip(const AttentionCall& call, const QueryTile& tile, const Strip& strip,
                 std::int64_t width, const Scratch& scratch) {
  const std::int64_t r0 = strip.r0, rows = strip.rows, n = strip.n;
  const AttentionArgs& args = call.args;
  float *s = scratch.weights, *ds = scratch.d_scores;
  multiply(rows, padded(n), call.dim, {scratch.q + r0 * width, width, 1}, scratch.keys_t, kKeyTile,
           s, kKeyTile);
  scores_to_exponents(call, tile, strip, s);
  if (args.softcap > 0) find_slope(call.score_factor, rows, n, s, scratch.slope);
  find_weights(scratch.exponent + r0, rows, n, s);
  multiply(rows, padded(n), call.dim, {scratch.d_out + r0 * width, width, 1}, scratch.values_t,
           kKeyTile, ds, kKeyTile);
  if (args.dropout.p > 0) drop_weights(args.dropout, tile, strip, ds);
  find_d_scores(s, scratch.delta + r0, rows, n, ds);
  if (args.softcap > 0) multiply_elements(scratch.slope, rows, n, ds);
}

// ---- the passes --------------------------------------------------------------------------------

template <typename T>
void visit_query_tile(const Pass& pass, const QueryTile& tile, const Scratch& scratch) {
  const AttentionCall& call = pass.call;
  const std::int64_t width = pass.width, n_k = tile.sequence.n_k, shift = tile.sequence.shift();
  const std::int64_t q0 = tile.q0, q1 = tile.q0 + tile.queries;
  load_query_tile<T>(pass, tile, scratch);
  find_delta<T>(pass, tile, scratch);
  std::fill(scratch.sum, scratch.sum + whole_blocks(tile.rows()) * width, 0.0f);
  for (std::int64_t k = 0; (k = call.args.mask.next_visible(q0, q1, k, shift)) < n_k;) {
    const std::int64_t k0 = k / call.key_tile * call.key_tile;
    const std::int64_t n = std::min(call.key_tile, n_k - k0);
    k = k0 + call.key_tile;
    load_key_tile<T>(pass, tile.sequence, tile.kv_head, k0, n, scratch);
    for_each_strip(call, tile, k0, n, [&](const Strip& strip) HWY_ATTR {
      visit_strip(call, tile, strip, width, scratch);
      multiply_add(strip.rows, width, n, {scratch.d_scores, kKeyTile, 1}, scratch.key_rows, width,
                   scratch.sum + strip.r0 * width, width);
    });
  }
  for (std::int64_t r = 0; r < tile.rows(); ++r) {
    store_row(scratch.sum + r * width, call.scale, call.dim,
              query_row<T>(pass.grads.d_q, tile.sequence, tile.query(r), tile.head(r)));
  }
}

template <typename T>
void visit_key_tile(const Pass& pass, const Sequence& s, std::int64_t kv_head, std::int64_t k0,
                    std::int64_t queries_per_tile, const Scratch& scratch) {
  const AttentionCall& call = pass.call;
  const Mask& mask = call.args.mask;
  const std::int64_t width = pass.width, n = std::min(call.key_tile, s.n_k - k0);
  load_key_tile<T>(pass, s, kv_head, k0, n, scratch);
  std::fill(scratch.d_k, scratch.d_k + whole_blocks(n) * width, 0.0f);
  std::fill(scratch.d_v, scratch.d_v + whole_blocks(n) * width, 0.0f);
  for (std::int64_t q0 = 0; q0 < s.n_q; q0 += queries_per_tile) {
    const std::int64_t queries = std::min(queries_per_tile, s.n_q - q0);
    if (mask.classify(q0, q0 + queries, k0, k0 + n, s.shift()) == TileState::skip) continue;
    const QueryTile tile{s, kv_head, q0, queries, call.group};
    load_query_tile<T>(pass, tile, scratch);
    for (std::int64_t r = 0; r < tile.rows(); ++r) {
      scratch.delta[r] = *pass.delta_at(s, tile.query(r), tile.head(r));
    }
    for_each_strip(call, tile, k0, n, [&](const Strip& strip) HWY_ATTR {
      const float *q = scratch.q + strip.r0 * width, *d_out = scratch.d_out + strip.r0 * width;
      visit_strip(call, tile, strip, width, scratch);
      multiply_add(n, width, strip.rows, {scratch.d_scores, 1, kKeyTile}, q, width, scratch.d_k,
                   width);
      const Dropout& dropout = call.args.dropout;
      if (dropout.p > 0) drop_weights(dropout, tile, strip, scratch.weights);
      multiply_add(n, width, strip.rows, {scratch.weights, 1, kKeyTile}, d_out, width, scratch.d_v,
                   width);
    });
  }
  T* rows[kKeyTile];
  point_at_keys(call.args, pass.grads.d_k, s, kv_head, k0, n, rows);
  // q has q_factor folded in, but the gradient needs scale instead.
  for (std::int64_t j = 0; j < n; ++j) {
    store_row(scratch.d_k + j * width, call.scale / call.q_factor, call.dim, rows[j]);
  }
  point_at_keys(call.args, pass.grads.d_v, s, kv_head, k0, n, rows);
  for (std::int64_t j = 0; j < n; ++j) {
    store_row(scratch.d_v + j * width, 1.0f, call.dim, rows[j]);
  }
}

void backward(Context& ctx, const AttentionBackwardArgs& grads) {
  const AttentionCall call(grads.forward);
  const Tensor& q = call.args.q;
  Workspace::Frame frame(ctx.workspace());
  const std::int64_t delta_size = checked_mul(checked_mul(q.shape[0], q.shape[1]), call.heads);
  const Pass pass{grads, call, padded(call.dim), frame.take<float>(delta_size)};
  const std::int64_t queries = choose_queries_per_tile(call, ctx.threads());
  const std::span<const WorkItem> q_items =
      query_tiles(call, frame, queries, [](const Sequence&) { return true; });
  const std::span<const WorkItem> k_items = key_tiles(call, frame);
  const std::int64_t rows = whole_blocks(queries * call.group);
  Carver size;
  Scratch(size, rows, pass.width);
  float* memory = frame.take<float>(checked_mul(ctx.threads(), size.used()));
  const auto scratch_of = [&](int worker) {
    Carver carver(memory + worker * size.used());
    return Scratch(carver, rows, pass.width);
  };
  with_float_type(q.dtype, [&](auto type) {
    using T = decltype(type);
    ctx.pool().parallel_for(
        std::ssize(q_items) * call.kv_heads, [&](std::int64_t task, int worker) HWY_ATTR {
          const WorkItem& item = q_items[static_cast<std::size_t>(task / call.kv_heads)];
          const Sequence s = sequence_of(call.args, item.sequence);
          const std::int64_t count = std::min(queries, s.n_q - item.begin);
          visit_query_tile<T>(pass, {s, task % call.kv_heads, item.begin, count, call.group},
                              scratch_of(worker));
        });
    ctx.pool().parallel_for(
        std::ssize(k_items) * call.kv_heads, [&](std::int64_t task, int worker) HWY_ATTR {
          const WorkItem& item = k_items[static_cast<std::size_t>(task / call.kv_heads)];
          visit_key_tile<T>(pass, sequence_of(call.args, item.sequence), task % call.kv_heads,
                            item.begin, queries, scratch_of(worker));
        });
  });
}

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(backward);

void attention_backward(Context& ctx, const AttentionBackwardArgs& args) {
  HWY_DYNAMIC_DISPATCH(backward)(ctx, args);
}

}  // namespace tessera::cpu
#endif
