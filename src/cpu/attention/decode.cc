// Attention of few queries over many cached keys. Only a handful of rows use each key and value, so
// transposing or converting them first would not pay. Both are read once, in place, and f16, bf16
// and 8-bit codes are promoted in registers. Memory bandwidth is the limit, so keys and values may
// have fewer bits than q: Q is the type of q and out, T that of k and v.
//
//   keys     | chunk 0      | chunk 1      | chunk 2   |     a task: one chunk, a block of kv heads
//            | 64 | 64 | .. | 64 | 64 | .. | 64 | ..   |     tiles of 64 keys, running softmax
//                  v               v             v
//             (out, lse)      (out, lse)    (out, lse)       merged in order: merge.h
//
// The heads of one token are neighbours in memory, and memory is fast only when read in order.
// Reading head by head takes two to three times as long. So a task takes a block of heads, and
// processes the keys of a tile, then its values, four tokens at a time. Memory must never wait for
// the arithmetic, so each step prefetches those of kAhead tokens later, in memory order, across the
// ends of keys, values and tiles:
//
//        | keys of a tile    | values of the tile | keys of the next  |
//   used |....j..            |                    |                   |
//   fetched       j+8 ..     |                    |                   |
//
// Chunks and blocks depend only on the shape, so results do not depend on the number of threads.
#include <algorithm>
#include <cstdint>

#include "core/checked.h"
#include "core/thread_pool.h"
#include "core/workspace.h"
#include "cpu/attention/attention.h"
#include "cpu/attention/chunks.h"
#include "cpu/attention/merge.h"
#include "cpu/attention/work.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attention/decode.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// Must come after highway.h.
#include "cpu/attention/dot-inl.h"
#include "cpu/attention/fetch-inl.h"
#include "cpu/attention/softmax-inl.h"
#include "cpu/attention/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

// Heads of a block: 2 KB of neighbouring memory, half a page. Heads that are not neighbours are not
// read together.
std::int64_t heads_per_block(const AttentionCall& call) {
  const Tensor& k = call.args.k;
  if (k.strides[2] > k.strides[1]) return 1;
  constexpr std::int64_t kBlockBytes = 2048;
  return std::clamp<std::int64_t>(kBlockBytes / (call.dim * size_of(k.dtype)), 1, call.kv_heads);
}

// Results of all chunks: for each chunk, [kv_heads, rows].
struct Partials {
  float* out;  // [.., width]
  float* lse;  // [..]
};

// The heads [first, first + count), each with `rows` query rows. Scratch is [count * rows, ..]: all
// rows of the first head, then all rows of the next.
struct HeadBlock {
  std::int64_t first, count, rows;
};

// One thread's scratch, for at most `rows` rows of a block.
struct Scratch {
  Scratch(Carver& carver, std::int64_t rows, std::int64_t width)
      : q(carver.take(rows * width)),
        out(carver.take(rows * width)),
        key_rows(carver.take(kKeyTile * width)),
        scores(carver.take(rows * kKeyTile)),
        max(carver.take(rows)),
        sum(carver.take(rows)) {}

  float *q, *out;    // [rows, width]
  float* key_rows;   // [kKeyTile, width]: keys or values that cannot be used in place
  float* scores;     // [rows, kKeyTile]
  float *max, *sum;  // [rows]
};

// ---- a tile of keys ----------------------------------------------------------------------------

// out [rows, width] += weights [rows, n] values [n, width]; T is the dtype, or float in scratch.
template <typename T>
HWY_NOINLINE void add_values(const float* weights, std::int64_t rows, std::int64_t width,
                             const T* const* values, std::int64_t n, float* out) {
  const auto value = [values](std::int64_t k) HWY_ATTR { return values[k]; };
  const std::int64_t fours = rows / 4 * 4;
  multiply_rows<4, true>(fours, width, n, {weights, kKeyTile, 1}, value, out, width);
  multiply_rows<1, true>(rows - fours, width, n, {weights + fours * kKeyTile, kKeyTile, 1}, value,
                         out + fours * width, width);
}

// Keys and values of the first head of a block, [k0, k0 + n); empty after the last tile.
template <typename T>
struct KeyTile {
  std::int64_t k0 = 0, n = 0;
  TileState state = TileState::skip;
  const T* keys[kKeyTile];
  const T* values[kKeyTile];
};

template <typename T>
TileRows<T> keys_of(const AttentionCall& call, const KeyTile<T>& tile) {
  return {tile.keys, tile.n, call.args.k.strides[2]};
}
template <typename T>
TileRows<T> values_of(const AttentionCall& call, const KeyTile<T>& tile) {
  return {tile.values, tile.n, call.args.v.strides[2]};
}

// How keys are read: in place, rotated in registers, or, if neither is possible, through four rows
// of scratch.
enum class KeyPath { stored, rotated, scratch };

template <typename T>
KeyPath key_path(const AttentionCall& call, const HeadBlock& block, std::int64_t width) {
  // With more rows, each key would be rotated too often.
  const bool few_rows = block.rows <= 2 * kDotRows;
  if (call.dim != width) return KeyPath::scratch;
  if (!call.rope.defined()) return KeyPath::stored;
  return few_rows && RotatedKeys<T>::fits(call.rope) ? KeyPath::rotated : KeyPath::scratch;
}

// The scores of all rows of the block, four keys at a time. Each path is an instance of its own,
// because the loop must stay tight when keys are used in place.
template <KeyPath kPath, typename T>
void score_tile(const AttentionCall& call, const HeadBlock& block, const KeyTile<T>& tile,
                std::int64_t width, const Scratch& scratch) {
  const std::int64_t k0 = tile.k0, n = tile.n, k_stride = call.args.k.strides[2];
  // Past the end, the last key is used again; those columns are padding.
  const auto last = [n](std::int64_t j) { return std::min(j, n - 1); };
  Fetcher<T> fetcher(block.count, call.dim, keys_of(call, tile), values_of(call, tile));
  for (std::int64_t j = 0; j < n; j += 4) {
    for (std::int64_t h = 0; h < block.count; ++h) {
      fetcher.fetch();
      StoredKeys<T> keys;
      for (int t = 0; t < 4; ++t) keys.rows[t] = tile.keys[last(j + t)] + h * k_stride;
      const float* q = scratch.q + h * block.rows * width;
      float* scores = scratch.scores + h * block.rows * kKeyTile + j;
      if constexpr (kPath == KeyPath::stored) {
        score_four_keys(q, block.rows, width, keys, scores);
      } else if constexpr (kPath == KeyPath::rotated) {
        RotatedKeys<T> rotated{keys, {}, call.rope.pairs};
        for (int t = 0; t < 4; ++t) rotated.cos[t] = call.rope.cos(k0 + last(j + t));
        score_four_keys(q, block.rows, width, rotated, scores);
      } else {
        const std::int64_t count = std::min<std::int64_t>(4, n - j);
        load_keys(call, keys.rows, k0 + j, count, width, scratch.key_rows);
        StoredKeys<float> loaded;
        for (int t = 0; t < 4; ++t) {
          loaded.rows[t] = scratch.key_rows + std::min<std::int64_t>(t, count - 1) * width;
        }
        score_four_keys(q, block.rows, width, loaded, scores);
      }
    }
  }
}

// Adds the values of a tile to the outputs of all rows. The keys of tile `next` are read after it.
template <typename T>
void add_tile(const AttentionCall& call, const HeadBlock& block, const KeyTile<T>& tile,
              const KeyTile<T>& next, std::int64_t width, const Scratch& scratch) {
  Fetcher<T> fetcher(block.count, call.dim, values_of(call, tile), keys_of(call, next));
  const std::int64_t v_stride = call.args.v.strides[2];
  for (std::int64_t j = 0; j < tile.n; j += 4) {
    const std::int64_t count = std::min<std::int64_t>(4, tile.n - j);
    for (std::int64_t h = 0; h < block.count; ++h) {
      fetcher.fetch();
      const float* weights = scratch.scores + h * block.rows * kKeyTile + j;
      float* out = scratch.out + h * block.rows * width;
      const T* values[4];
      for (std::int64_t t = 0; t < count; ++t) values[t] = tile.values[j + t] + h * v_stride;
      if (call.dim == width) {
        add_values(weights, block.rows, width, values, count, out);
      } else {
        load_rows(values, count, call.dim, 1.0f, width, scratch.key_rows);
        const float* rows[4];
        for (std::int64_t t = 0; t < count; ++t) rows[t] = scratch.key_rows + t * width;
        add_values(weights, block.rows, width, rows, count, out);
      }
    }
  }
}

template <typename T>
void visit_keys(const AttentionCall& call, const Sequence& s, const HeadBlock& block,
                const KeyTile<T>& tile, const KeyTile<T>& next, std::int64_t width,
                const Scratch& scratch) {
  const Strip strip{0, block.rows, tile.k0, tile.n, tile.state};
  const auto for_each_head = [&](auto&& fn) HWY_ATTR {
    for (std::int64_t h = 0; h < block.count; ++h) {
      fn(QueryTile{s, block.first + h, 0, s.n_q, call.group},
         scratch.scores + h * block.rows * kKeyTile);
    }
  };
  switch (key_path<T>(call, block, width)) {
    case KeyPath::stored:
      score_tile<KeyPath::stored>(call, block, tile, width, scratch);
      break;
    case KeyPath::rotated:
      score_tile<KeyPath::rotated>(call, block, tile, width, scratch);
      break;
    case KeyPath::scratch:
      score_tile<KeyPath::scratch>(call, block, tile, width, scratch);
      break;
  }
  for_each_head([&](const QueryTile& queries, float* scores) HWY_ATTR {
    apply_scales(call, call.args.k_scales, queries, block.rows, strip.k0, strip.n, scores);
    scores_to_exponents(call, queries, strip, scores);
  });
  update({scratch.max, scratch.sum, scratch.out, width}, block.count * block.rows, padded(strip.n),
         scratch.scores);
  if (call.args.dropout.p > 0) {
    for_each_head([&](const QueryTile& queries, float* weights)
                      HWY_ATTR { drop_weights(call.args.dropout, queries, strip, weights); });
  }
  for_each_head([&](const QueryTile& queries, float* weights) HWY_ATTR {
    apply_scales(call, call.args.v_scales, queries, block.rows, strip.k0, strip.n, weights);
  });
  add_tile(call, block, tile, next, width, scratch);
}

// ---- a chunk, and all of them ------------------------------------------------------------------

template <typename Q>
void store_result(const AttentionCall& call, const QueryTile& tile, std::int64_t r,
                  const float* out, float factor, float lse) {
  const std::int64_t i = tile.query(r), head = tile.head(r);
  store_row(out, factor, call.dim, query_row<Q>(call.args.out, tile.sequence, i, head));
  if (call.args.lse.defined()) *lse_at(call.args.lse, tile.sequence, i, head) = lse;
}

// Stores the results of one head of one chunk: in the output if the chunk is the whole sequence,
// otherwise in the partial results.
template <typename Q>
void store_head(const AttentionCall& call, const QueryTile& tile, const Chunk& chunk,
                const Running& running, const Partials& partials) {
  const bool is_all = chunk.begin == 0 && chunk.end == tile.sequence.n_k;
  for (std::int64_t r = 0; r < tile.rows(); ++r) {
    const Running row = running.from_row(r);
    if (is_all) {
      store_result<Q>(call, tile, r, row.out, row_factor(row), row_lse(row));
    } else {
      const std::int64_t at = chunk.partial + tile.kv_head * tile.rows() + r;
      store_row(row.out, row_factor(row), row.width, partials.out + at * row.width);
      partials.lse[at] = row_lse(row);
    }
  }
}

template <typename T>
void visit_chunk(const AttentionCall& call, const Sequence& s, const Chunk& chunk,
                 const HeadBlock& block, const Partials& partials, const Scratch& scratch) {
  const Mask& mask = call.args.mask;
  const std::int64_t shift = s.shift(), width = padded(call.dim);
  const Running running{scratch.max, scratch.sum, scratch.out, width};
  const auto tile_of = [&](std::int64_t h) {
    return QueryTile{s, block.first + h, 0, s.n_q, call.group};
  };
  // Finds the first tile from key k on that any query sees, and moves k past it.
  std::int64_t k = chunk.begin;
  const auto find_tile = [&](KeyTile<T>& tile) HWY_ATTR {
    for (tile.n = 0; (k = mask.next_visible(0, s.n_q, k, shift)) < chunk.end;) {
      tile.k0 = k / call.key_tile * call.key_tile;
      const std::int64_t n = std::min(call.key_tile, chunk.end - tile.k0);
      k = tile.k0 + call.key_tile;
      tile.state = mask.classify(0, s.n_q, tile.k0, tile.k0 + n, shift);
      if (tile.state == TileState::skip) continue;
      point_at_keys(call.args, call.args.k, s, block.first, tile.k0, n, tile.keys);
      point_at_keys(call.args, call.args.v, s, block.first, tile.k0, n, tile.values);
      tile.n = n;
      return;
    }
  };
  KeyTile<T> tiles[2];
  find_tile(tiles[0]);
  fetch_first(block.count, call.dim, keys_of(call, tiles[0]));
  for (std::int64_t h = 0; h < block.count; ++h) {
    load_queries(call, tile_of(h), width, scratch.q + h * block.rows * width);
  }
  start(running, block.count * block.rows);
  for (int i = 0; tiles[i].n > 0; i = 1 - i) {
    find_tile(tiles[1 - i]);
    visit_keys(call, s, block, tiles[i], tiles[1 - i], width, scratch);
  }
  with_float_type(call.args.out.dtype, [&](auto type) HWY_ATTR {
    for (std::int64_t h = 0; h < block.count; ++h) {
      store_head<decltype(type)>(call, tile_of(h), chunk, running.from_row(h * block.rows),
                                 partials);
    }
  });
}

// Merges the chunks of a sequence in order, into the results of its first chunk.
template <typename Q>
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
    store_result<Q>(call, tile, r, out, 1.0f, *lse);
  }
}

// Rows are loaded in whole blocks, so loading may write up to one block past the last row.
std::int64_t rows_of_block(const AttentionCall& call, std::int64_t rows_of_head) {
  return whole_blocks(rows_of_head * heads_per_block(call)) + kBlockRows;
}

// f32 values of one thread.
std::int64_t worker_scratch(const AttentionCall& call, std::int64_t rows_of_head) {
  Carver size;
  Scratch(size, rows_of_block(call, rows_of_head), padded(call.dim));
  return size.used();
}

// Workspace that decode() takes for `sequences` of up to n_q queries and n_k keys each.
std::int64_t scratch_bytes(Context& ctx, const AttentionCall& call, std::int64_t sequences,
                           std::int64_t n_q, std::int64_t n_k) {
  const std::int64_t chunks = checked_mul(sequences, most_chunks(n_k));
  // A sequence of one chunk writes its result directly to the output.
  const std::int64_t partial_rows =
      most_chunks(n_k) == 1 ? 0 : checked_mul(chunks, checked_mul(n_q, call.heads));
  const std::int64_t worker = worker_scratch(call, n_q * call.group);
  return ScratchSize()
      .add<Chunk>(chunks)
      .add<std::int64_t>(sequences + 1)
      .add<float>(checked_mul(partial_rows, padded(call.dim)))
      .add<float>(partial_rows)
      .add<float>(checked_mul(ctx.threads(), worker))
      .bytes();
}

void decode(Context& ctx, const AttentionCall& call, std::span<const std::int64_t> sequences) {
  Workspace::Frame frame(ctx.workspace());
  const ChunkPlan plan = make_chunks(call, sequences, frame);
  const std::int64_t width = padded(call.dim), block_heads = heads_per_block(call);
  const std::int64_t blocks = ceil_div(call.kv_heads, block_heads);
  const Partials partials{frame.take<float>(checked_mul(plan.partial_rows, width)),
                          frame.take<float>(plan.partial_rows)};
  const std::int64_t rows = rows_of_block(call, plan.most_rows);
  const std::int64_t worker_stride = worker_scratch(call, plan.most_rows);
  float* memory = frame.take<float>(checked_mul(ctx.threads(), worker_stride));
  with_key_type(call.args.k.dtype, [&](auto type) {
    ctx.pool().parallel_for(std::ssize(plan.chunks) * blocks, [&](std::int64_t task,
                                                                  int worker) HWY_ATTR {
      const Chunk& chunk = plan.chunks[static_cast<std::size_t>(task / blocks)];
      const Sequence s = sequence_of(call.args, chunk.sequence);
      const std::int64_t first = task % blocks * block_heads;
      const HeadBlock block{first, std::min(block_heads, call.kv_heads - first),
                            s.n_q * call.group};
      Carver carver(memory + worker * worker_stride);
      visit_chunk<decltype(type)>(call, s, chunk, block, partials, Scratch(carver, rows, width));
    });
  });
  if (plan.partial_rows == 0) return;
  with_float_type(call.args.out.dtype, [&](auto type) {
    ctx.pool().parallel_runs(
        std::ssize(sequences) * call.kv_heads, [&](std::int64_t task, int) HWY_ATTR {
          const std::size_t i = static_cast<std::size_t>(task / call.kv_heads);
          const Sequence s = sequence_of(call.args, sequences[i]);
          const std::span chunks(plan.chunks.begin() + plan.first[i],
                                 plan.chunks.begin() + plan.first[i + 1]);
          if (chunks.size() == 1) return;
          merge_chunks<decltype(type)>(call, {s, task % call.kv_heads, 0, s.n_q, call.group},
                                       chunks, partials);
        });
  });
}

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(decode);
HWY_EXPORT(scratch_bytes);

void attention_decode(Context& ctx, const AttentionCall& call,
                      std::span<const std::int64_t> sequences) {
  HWY_DYNAMIC_DISPATCH(decode)(ctx, call, sequences);
}

std::int64_t decode_scratch_bytes(Context& ctx, const AttentionCall& call, std::int64_t sequences,
                                  std::int64_t n_q, std::int64_t n_k) {
  return HWY_DYNAMIC_DISPATCH(scratch_bytes)(ctx, call, sequences, n_q, n_k);
}

}  // namespace tessera::cpu
#endif
