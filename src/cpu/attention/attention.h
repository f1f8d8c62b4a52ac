// Attention on the CPU. src/ops/attention.cc has checked the arguments.
//
//   attention.cc   chooses the kernel for each sequence
//   prefill.cc     many queries: tiles of queries x keys, products in registers
//   decode.cc      few queries: one pass over the cached keys, cut into chunks
//   chunks.h       cuts the keys of decode into chunks for the threads
//   merge.h        merges results over disjoint keys into one
//   backward.cc    gradients
//   layout.h       finds a row in a dense, ragged or paged batch
//   work.h         divides the work among the threads and orders it
//   mask.h         finds the hidden keys of a partial tile
//   softmax-inl.h  scores to weights: softcap, mask, running softmax, dropout
//   dot-inl.h      scores of few rows, with keys read in place
//   tile-inl.h     loads, transpose, matrix product, exp2
#pragma once

#include <cstdint>
#include <span>

#include "cpu/attention/layout.h"
#include "tessera/attention.h"

namespace tessera::cpu {

// Returns the kernels that ran: "cpu.prefill", "cpu.decode", or in a ragged batch of both kinds
// "cpu.prefill+decode".
const char* attention(Context& ctx, const AttentionArgs& args);

// The most workspace that attention() takes, for sequences of any length that fits the tensors or
// the page table, and for this many queries or fewer.
std::int64_t attention_scratch_bytes(Context& ctx, const AttentionArgs& args);

void attention_backward(Context& ctx, const AttentionBackwardArgs& args);

// ---- shared by the kernels ---------------------------------------------------------------------

// Keys of a tile. 64 x 64 f32 is 16 KB: the transposed keys of head dim 64 fill half of an L1
// cache, and a row of scores is four AVX-512 vectors.
inline constexpr std::int64_t kKeyTile = 64;
// Query rows that go through scores, softmax and output together: their scores take 8 KB.
inline constexpr std::int64_t kStripRows = 32;

// How keys are rotated as they are read: cos and sin of every key position, [n_k, 2, pairs].
struct KeyRotation {
  const float* table = nullptr;
  std::int64_t pairs = 0;
  RopeStyle style = RopeStyle::half_split;

  bool defined() const { return table != nullptr; }
  const float* cos(std::int64_t position) const { return table + 2 * position * pairs; }
  const float* sin(std::int64_t position) const { return cos(position) + pairs; }
};

// The call, and the values derived from it once for all tiles.
struct AttentionCall {
  explicit AttentionCall(const AttentionArgs& call_args);

  const AttentionArgs& args;
  std::int64_t heads, kv_heads, group, dim;
  std::int64_t key_tile;    // kKeyTile, or less for a mask of small blocks
  std::int64_t strip_rows;  // kStripRows, or less for a mask of small blocks
  float scale;              // the given one, or 1 / sqrt(dim)
  // The exponent of 2 is q_factor * (q k), or score_factor * tanh(q_factor * (q k)) with a softcap.
  float q_factor, score_factor;
  KeyRotation rope{};
};

// A tile of queries. Row r is query q0 + r / group of head r % group, counted among the heads that
// share a kv head. These heads share the tile, and with it every load of keys and values.
struct QueryTile {
  Sequence sequence;
  std::int64_t kv_head, q0, queries, group;

  std::int64_t rows() const { return queries * group; }
  std::int64_t query(std::int64_t r) const { return q0 + r / group; }
  std::int64_t head(std::int64_t r) const { return kv_head * group + r % group; }
  // The query after the last one of rows [.., r1).
  std::int64_t query_end(std::int64_t r1) const { return q0 + (r1 + group - 1) / group; }
};

// Some rows of a query tile against some keys, and the mask's state for them.
struct Strip {
  std::int64_t r0, rows;  // rows [r0, r0 + rows) of the tile
  std::int64_t k0, n;     // keys [k0, k0 + n)
  TileState state;
};

struct WorkItem;

// Runs each item's queries [begin, begin + queries_per_tile), for every kv head.
void attention_prefill(Context& ctx, const AttentionCall& call, std::span<const WorkItem> items,
                       std::int64_t queries_per_tile);
// Runs all queries of these sequences, for every kv head.
void attention_decode(Context& ctx, const AttentionCall& call,
                      std::span<const std::int64_t> sequences);

// Workspace that each kernel takes. For decode: `sequences` of up to n_q queries and n_k keys each.
std::int64_t prefill_scratch_bytes(Context& ctx, const AttentionCall& call,
                                   std::int64_t queries_per_tile);
std::int64_t decode_scratch_bytes(Context& ctx, const AttentionCall& call, std::int64_t sequences,
                                  std::int64_t n_q, std::int64_t n_k);

}  // namespace tessera::cpu
