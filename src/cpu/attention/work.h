// How an attention call is divided among threads: tiles of queries or of keys, longest first, and
// scratch memory for each thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/checked.h"
#include "core/workspace.h"
#include "cpu/attention/attention.h"

namespace tessera::cpu {

// Hands out pieces of one block of scratch, each on its own cache line. Without a block it only
// counts.
class Carver {
 public:
  explicit Carver(float* memory = nullptr) : memory_(memory) {}
  float* take(std::int64_t floats) {
    const std::int64_t at = used_;
    used_ = checked_add(used_, checked_align(floats, 16));
    return memory_ == nullptr ? nullptr : memory_ + at;
  }
  std::int64_t used() const { return used_; }

 private:
  float* memory_;
  std::int64_t used_ = 0;
};

// Part of a sequence: its queries, or its keys, from `begin` on.
struct WorkItem {
  std::int64_t sequence, begin, cost;
};

// Threads take items in this order. Long items come first, so that no thread is left alone with one
// at the end.
inline void sort_longest_first(std::span<WorkItem> items) {
  std::sort(items.begin(), items.end(), [](const WorkItem& a, const WorkItem& b) {
    if (a.cost != b.cost) return a.cost > b.cost;
    return a.sequence != b.sequence ? a.sequence < b.sequence : a.begin < b.begin;
  });
}

// Roughly the number of keys that the queries [q0, q1) may see: from the first query's window to
// the last one's.
inline std::int64_t keys_seen(const Mask& mask, const Sequence& s, std::int64_t q0,
                              std::int64_t q1) {
  const std::int64_t p0 = q0 + s.shift(), p1 = q1 - 1 + s.shift();
  const std::int64_t begin = mask.left() < 0 ? 0 : p0 - std::min(p0, mask.left());
  const bool open = mask.right() < 0 || mask.right() >= s.n_k - 1 - p1;
  return std::max<std::int64_t>(0, (open ? s.n_k : p1 + mask.right() + 1) - begin);
}

// Roughly the number of queries that may see the keys [k0, k1): the same windows from the other
// side.
inline std::int64_t queries_seeing(const Mask& mask, const Sequence& s, std::int64_t k0,
                                   std::int64_t k1) {
  const std::int64_t i0 = k0 - s.shift(), i1 = k1 - 1 - s.shift();
  const std::int64_t begin = mask.right() < 0 ? 0 : i0 - std::min(i0, mask.right());
  const bool open = mask.left() < 0 || mask.n_sink() > 0 || mask.left() >= s.n_q - 1 - i1;
  return std::max<std::int64_t>(0, (open ? s.n_q : i1 + mask.left() + 1) - begin);
}

// The queries of all sequences that wanted(sequence) accepts, in tiles.
template <typename F>
std::span<WorkItem> query_tiles(const AttentionCall& call, Workspace::Frame& frame,
                                std::int64_t queries_per_tile, F&& wanted) {
  const auto for_each_tile = [&](auto&& fn) {
    for (std::int64_t b = 0; b < sequence_count(call.args); ++b) {
      const Sequence s = sequence_of(call.args, b);
      if (!wanted(s)) continue;
      for (std::int64_t q0 = 0; q0 < s.n_q; q0 += queries_per_tile) fn(s, q0);
    }
  };
  std::int64_t count = 0;
  for_each_tile([&](const Sequence&, std::int64_t) { ++count; });
  WorkItem* items = frame.take<WorkItem>(count);
  count = 0;
  for_each_tile([&](const Sequence& s, std::int64_t q0) {
    const std::int64_t q1 = std::min(q0 + queries_per_tile, s.n_q);
    items[count++] = {s.index, q0, keys_seen(call.args.mask, s, q0, q1)};
  });
  sort_longest_first({items, items + count});
  return {items, items + count};
}

// The keys of all sequences, in tiles.
inline std::span<WorkItem> key_tiles(const AttentionCall& call, Workspace::Frame& frame) {
  std::int64_t count = 0;
  for (std::int64_t b = 0; b < sequence_count(call.args); ++b) {
    count += ceil_div(sequence_of(call.args, b).n_k, call.key_tile);
  }
  WorkItem* items = frame.take<WorkItem>(count);
  count = 0;
  for (std::int64_t b = 0; b < sequence_count(call.args); ++b) {
    const Sequence s = sequence_of(call.args, b);
    for (std::int64_t k0 = 0; k0 < s.n_k; k0 += call.key_tile) {
      const std::int64_t k1 = std::min(k0 + call.key_tile, s.n_k);
      items[count++] = {b, k0, queries_seeing(call.args.mask, s, k0, k1)};
    }
  }
  sort_longest_first({items, items + count});
  return {items, items + count};
}

// Calls visit(strip) for each strip of the tile that sees any of the keys [k0, k0 + n).
template <typename F>
void for_each_strip(const AttentionCall& call, const QueryTile& tile, std::int64_t k0,
                    std::int64_t n, F&& visit) {
  for (std::int64_t r0 = 0; r0 < tile.rows(); r0 += call.strip_rows) {
    const std::int64_t r1 = std::min(r0 + call.strip_rows, tile.rows());
    const TileState state = call.args.mask.classify(tile.query(r0), tile.query_end(r1), k0, k0 + n,
                                                    tile.sequence.shift());
    if (state != TileState::skip) visit(Strip{r0, r1 - r0, k0, n, state});
  }
}

// Chooses the queries of a tile, given the number of all queries; more queries never give smaller
// tiles. Larger tiles share the cost of loading a key tile among more rows, smaller tiles are
// easier to divide among threads. A row's result does not depend on its tile, so the choice may
// depend on the number of threads.
inline std::int64_t choose_queries_per_tile(const AttentionCall& call, std::int64_t queries,
                                            int threads) {
  constexpr std::int64_t kMostRows = 128, kFewestRows = 32, kTilesPerThread = 4;
  std::int64_t rows = kMostRows;
  while (rows > kFewestRows && queries * call.heads < rows * kTilesPerThread * threads) rows /= 2;
  return std::max<std::int64_t>(1, rows / call.group);
}
inline std::int64_t choose_queries_per_tile(const AttentionCall& call, int threads) {
  std::int64_t queries = 0;
  for (std::int64_t b = 0; b < sequence_count(call.args); ++b) {
    queries += sequence_of(call.args, b).n_q;
  }
  return choose_queries_per_tile(call, queries, threads);
}

}  // namespace tessera::cpu
