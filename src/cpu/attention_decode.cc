// Attention of few queries over many cached keys. Each key and value is used by a handful of rows
// only, so nothing is gained from transposing or converting it first: both are read once, where
// they lie, and f16 and bf16 are promoted in registers. Memory bandwidth is the limit.
//
//   keys     | chunk 0      | chunk 1      | chunk 2   |     a task: one chunk, one kv head
//            | 64 | 64 | .. | 64 | 64 | .. | 64 | ..   |     tiles of 64 keys, running softmax
//                  v               v             v
//             (out, lse)      (out, lse)    (out, lse)       merged in order: attention_merge.h
//
// Chunks follow from the number of keys alone, so that results do not depend on the threads.
#include <algorithm>
#include <cstdint>

#include "core/checked.h"
#include "core/thread_pool.h"
#include "core/type_switch.h"
#include "core/workspace.h"
#include "cpu/attention.h"
#include "cpu/attention_merge.h"
#include "cpu/attention_work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attention_decode.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After highway.h.
#include "cpu/attention_softmax-inl.h"
#include "cpu/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

// A chunk is a few microseconds of reading; more than 64 of them would only make merging longer.
std::int64_t chunk_size(std::int64_t n_k) {
  constexpr std::int64_t kSmallestChunk = 256, kMostChunks = 64;
  return std::max(kSmallestChunk, checked_align(ceil_div(n_k, kMostChunks), kKeyTile));
}

struct Chunk {
  std::int64_t sequence, begin, end;  // keys [begin, end)
  std::int64_t partial;               // its first row of the partial results
};

// Results of all chunks: for each chunk, [kv_heads, rows].
struct Partials {
  float* out;  // [.., width]
  float* lse;  // [..]
};

// One thread's scratch, for at most `rows` query rows.
struct Scratch {
  Scratch(Carver& carver, std::int64_t rows, std::int64_t width)
      : q(carver.take(rows * width)),
        out(carver.take(rows * width)),
        key_rows(carver.take(kKeyTile * width)),
        scores(carver.take(rows * kKeyTile)),
        max(carver.take(rows)),
        sum(carver.take(rows)) {}

  float *q, *out;    // [rows, width]
  float* key_rows;   // [kKeyTile, width]: keys or values that cannot be read where they lie
  float* scores;     // [rows, kKeyTile]
  float *max, *sum;  // [rows]
};

// ---- dot products
// ----------------------------------------------------------------------------------

#if HWY_TARGET != HWY_SCALAR
// Adds up the 128-bit blocks of a vector.
template <class D>
HWY_INLINE auto sum_of_blocks(D, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return sum_of_blocks(half, hn::Add(hn::UpperHalf(half, v), hn::LowerHalf(half, v)));
  }
}
#endif

// to [4] = the sums of the lanes of a, b, c and e: a transpose and the additions in one.
HWY_INLINE void store_sums(Vec a, Vec b, Vec c, Vec e, float* to) {
#if HWY_TARGET == HWY_SCALAR
  const Vec lanes[] = {a, b, c, e};
  for (int t = 0; t < 4; ++t) to[t] = hn::GetLane(lanes[t]);
#else
  const F32 d;
  const hn::FixedTag<float, 4> d4;
  const hn::RepartitionToWide<F32> d64;
  const auto ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const auto ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const auto ab64 = hn::BitCast(d64, ab), ce64 = hn::BitCast(d64, ce);
  const auto abce = hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, ab64, ce64)),
                            hn::BitCast(d, hn::InterleaveUpper(d64, ab64, ce64)));
  hn::Store(sum_of_blocks(d, abce), d4, to);
#endif
}

// s [kRows, n] = q [kRows, width] keys [n, width]^T, four keys at a time.
template <int kRows, typename T>
HWY_INLINE void score_rows(const float* q, std::int64_t width, const T* const* keys, std::int64_t n,
                           float* s) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t j = 0; j < n; j += 4) {
    // Past the end the last key stands in; its columns are padding.
    const T* key[4];
    for (int t = 0; t < 4; ++t) key[t] = keys[std::min(j + t, n - 1)];
    Vec sum[kRows][4];
    for (int r = 0; r < kRows; ++r) {
      for (int t = 0; t < 4; ++t) sum[r][t] = hn::Zero(d);
    }
    for (std::int64_t i = 0; i < width; i += lanes) {
      Vec k[4];
      for (int t = 0; t < 4; ++t) k[t] = load_f32(d, key[t] + i);
      for (int r = 0; r < kRows; ++r) {
        const auto q_vector = hn::Load(d, q + r * width + i);
        for (int t = 0; t < 4; ++t) sum[r][t] = hn::MulAdd(q_vector, k[t], sum[r][t]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      store_sums(sum[r][0], sum[r][1], sum[r][2], sum[r][3], s + r * kKeyTile + j);
    }
  }
}

// ---- a tile of keys ----------------------------------------------------------------------------

// scores [rows, n]; T is the dtype, or float for keys in scratch.
template <typename T>
HWY_NOINLINE void score_keys(const Scratch& scratch, std::int64_t rows, std::int64_t width,
                             const T* const* keys, std::int64_t n) {
  std::int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    score_rows<4>(scratch.q + r * width, width, keys, n, scratch.scores + r * kKeyTile);
  }
  for (; r < rows; ++r) {
    score_rows<1>(scratch.q + r * width, width, keys, n, scratch.scores + r * kKeyTile);
  }
}

// out [rows, width] += scores [rows, n] values [n, width]
template <typename T>
HWY_NOINLINE void add_values(const Scratch& scratch, std::int64_t rows, std::int64_t width,
                             const T* const* values, std::int64_t n) {
  const auto value = [values](std::int64_t k) HWY_ATTR { return values[k]; };
  const std::int64_t fours = rows / 4 * 4;
  multiply_rows<4, true>(fours, width, n, {scratch.scores, kKeyTile, 1}, value, scratch.out, width);
  multiply_rows<1, true>(rows - fours, width, n, {scratch.scores + fours * kKeyTile, kKeyTile, 1},
                         value, scratch.out + fours * width, width);
}

// The tile's keys or values in f32 scratch, for dims that are no whole vectors, and to be turned.
template <typename T>
void load_to_scratch(const T* const* rows, std::int64_t n, std::int64_t dim, std::int64_t width,
                     float* to, const float** to_rows) {
  load_rows(rows, n, dim, 1.0f, width, to);
  for (std::int64_t j = 0; j < n; ++j) to_rows[j] = to + j * width;
}

template <typename T>
void visit_keys(const AttentionCall& call, const QueryTile& tile, std::int64_t k0, std::int64_t n,
                TileState state, std::int64_t width, const Scratch& scratch) {
  const AttentionArgs& args = call.args;
  const bool whole_vectors = call.dim == width;
  const T* rows[kKeyTile];
  const float* scratch_rows[kKeyTile];
  point_at_keys(args, args.k, tile.sequence, tile.kv_head, k0, n, rows);
  if (whole_vectors && !call.rope.defined()) {
    score_keys(scratch, tile.rows(), width, rows, n);
  } else {
    load_to_scratch(rows, n, call.dim, width, scratch.key_rows, scratch_rows);
    if (call.rope.defined()) turn_keys(call.rope, k0, n, width, scratch.key_rows);
    score_keys(scratch, tile.rows(), width, scratch_rows, n);
  }
  if (args.softcap > 0) cap_scores(call.score_factor, tile.rows(), n, scratch.scores);
  if (state == TileState::partial) {
    hide_keys(args.mask, tile, 0, tile.rows(), k0, n, scratch.scores);
  }
  hide_padding(tile.rows(), n, scratch.scores);
  update({scratch.max, scratch.sum, scratch.out, width}, tile.rows(), padded(n), scratch.scores);
  if (args.dropout.p > 0) {
    drop_weights(args.dropout, tile, 0, tile.rows(), k0, n, scratch.scores);
  }
  point_at_keys(args, args.v, tile.sequence, tile.kv_head, k0, n, rows);
  if (whole_vectors) {
    add_values(scratch, tile.rows(), width, rows, n);
  } else {
    load_to_scratch(rows, n, call.dim, width, scratch.key_rows, scratch_rows);
    add_values(scratch, tile.rows(), width, scratch_rows, n);
  }
}

// ---- a chunk, and all of them
// --------------------------------------------------------------------

template <typename T>
void store_result(const AttentionCall& call, const QueryTile& tile, std::int64_t r,
                  const float* out, float factor, float lse) {
  const std::int64_t i = tile.query(r), head = tile.head(r);
  store_row(out, factor, call.dim, query_row<T>(call.args.out, tile.sequence, i, head));
  if (call.args.lse.defined()) *lse_at(call.args.lse, tile.sequence, i, head) = lse;
}

template <typename T>
void visit_chunk(const AttentionCall& call, const QueryTile& tile, const Chunk& chunk,
                 const Partials& partials, const Scratch& scratch) {
  const Mask& mask = call.args.mask;
  const std::int64_t shift = tile.sequence.shift(), q1 = tile.queries, width = padded(call.dim);
  const Running running{scratch.max, scratch.sum, scratch.out, width};
  load_queries<T>(call.args.q, tile, call.dim, call.q_factor, width, scratch.q);
  start(running, tile.rows());
  for (std::int64_t k = chunk.begin; (k = mask.next_visible(0, q1, k, shift)) < chunk.end;) {
    const std::int64_t k0 = k / call.key_tile * call.key_tile;
    const std::int64_t n = std::min(call.key_tile, chunk.end - k0);
    k = k0 + call.key_tile;
    const TileState state = mask.classify(0, q1, k0, k0 + n, shift);
    if (state != TileState::skip) visit_keys<T>(call, tile, k0, n, state, width, scratch);
  }
  const bool is_all = chunk.begin == 0 && chunk.end == tile.sequence.n_k;
  for (std::int64_t r = 0; r < tile.rows(); ++r) {
    const Running row = running.from_row(r);
    if (is_all) {
      store_result<T>(call, tile, r, row.out, row_factor(row), row_lse(row));
    } else {
      const std::int64_t at = chunk.partial + tile.kv_head * tile.rows() + r;
      store_row(row.out, row_factor(row), width, partials.out + at * width);
      partials.lse[at] = row_lse(row);
    }
  }
}

// Into the results of the sequence's first chunk, chunk after chunk.
template <typename T>
void merge_chunks(const AttentionCall& call, const QueryTile& tile, std::span<const Chunk> chunks,
                  const Partials& partials) {
  const std::int64_t width = padded(call.dim);
  for (std::int64_t r = 0; r < tile.rows(); ++r) {
    const auto at = [&](const Chunk& chunk) {
      return chunk.partial + tile.kv_head * tile.rows() + r;
    };
    const std::int64_t first = at(chunks[0]);
    float *out = partials.out + first * width, *lse = partials.lse + first;
    for (const Chunk& chunk : chunks.subspan(1)) {
      merge_attention(out, lse, partials.out + at(chunk) * width, partials.lse[at(chunk)], width);
    }
    store_result<T>(call, tile, r, out, 1.0f, *lse);
  }
}

QueryTile whole_sequence(const AttentionCall& call, std::int64_t index, std::int64_t kv_head) {
  const Sequence sequence = sequence_of(call.args, index);
  return {sequence, kv_head, 0, sequence.n_q, call.group};
}

void decode(Context& ctx, const AttentionCall& call, std::span<const std::int64_t> sequences) {
  const std::int64_t width = padded(call.dim);
  std::int64_t chunk_count = 0, most_rows = 0;
  for (std::int64_t index : sequences) {
    const Sequence s = sequence_of(call.args, index);
    chunk_count += std::max<std::int64_t>(1, ceil_div(s.n_k, chunk_size(s.n_k)));
    most_rows = std::max(most_rows, s.n_q * call.group);
  }
  Workspace::Frame frame(ctx.workspace());
  // Chunks of one sequence lie together; first_chunk[i] is where those of sequences[i] begin.
  Chunk* chunks = frame.take<Chunk>(chunk_count);
  const std::int64_t n_sequences = std::ssize(sequences);
  std::int64_t* first_chunk = frame.take<std::int64_t>(n_sequences + 1);
  std::int64_t filled = 0, partial_rows = 0;
  for (std::int64_t i = 0; i < n_sequences; ++i) {
    const Sequence s = sequence_of(call.args, sequences[i]);
    const std::int64_t size = chunk_size(s.n_k);
    first_chunk[i] = filled;
    for (std::int64_t begin = 0; begin == 0 || begin < s.n_k; begin += size) {
      chunks[filled++] = {s.index, begin, std::min(begin + size, s.n_k), partial_rows};
      if (s.n_k > size) partial_rows += s.n_q * call.heads;
    }
  }
  first_chunk[n_sequences] = filled;
  const Partials partials{frame.take<float>(checked_mul(partial_rows, width)),
                          frame.take<float>(partial_rows)};
  const std::int64_t rows = whole_blocks(most_rows);
  Carver size;
  Scratch(size, rows, width);
  float* memory = frame.take<float>(checked_mul(ctx.threads(), size.used()));
  with_float_type(call.args.q.dtype, [&](auto type) {
    using T = decltype(type);
    ctx.pool().parallel_for(filled * call.kv_heads, [&](std::int64_t task, int worker) HWY_ATTR {
      const Chunk& chunk = chunks[task / call.kv_heads];
      Carver carver(memory + worker * size.used());
      visit_chunk<T>(call, whole_sequence(call, chunk.sequence, task % call.kv_heads), chunk,
                     partials, Scratch(carver, rows, width));
    });
    if (partial_rows == 0) return;
    ctx.pool().parallel_for(n_sequences * call.kv_heads, [&](std::int64_t task, int) HWY_ATTR {
      const std::int64_t i = task / call.kv_heads;
      const std::span of_sequence(chunks + first_chunk[i], chunks + first_chunk[i + 1]);
      if (of_sequence.size() == 1) return;
      merge_chunks<T>(call, whole_sequence(call, sequences[i], task % call.kv_heads), of_sequence,
                      partials);
    });
  });
}

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(decode);

void attention_decode(Context& ctx, const AttentionCall& call,
                      std::span<const std::int64_t> sequences) {
  HWY_DYNAMIC_DISPATCH(decode)(ctx, call, sequences);
}

}  // namespace tessera::cpu
#endif
