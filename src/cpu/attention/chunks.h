// Cuts the cached keys of sequences with few queries into chunks for the threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/checked.h"
#include "core/workspace.h"
#include "cpu/attention/attention.h"

namespace tessera::cpu {

// Reading a chunk takes about ten microseconds. More than 64 chunks would only make merging longer.
inline constexpr std::int64_t kSmallestChunk = 128, kMostChunks = 64;

// The most chunks of any sequence of up to n_k keys.
inline std::int64_t most_chunks(std::int64_t n_k) {
  return std::clamp<std::int64_t>(ceil_div(n_k, kSmallestChunk), 1, kMostChunks);
}

inline std::int64_t chunk_size(std::int64_t n_k) {
  return std::max(kSmallestChunk, checked_align(ceil_div(n_k, kMostChunks), kKeyTile));
}

struct Chunk {
  std::int64_t sequence, begin, end;  // keys [begin, end)
  std::int64_t partial;               // its first row of the partial results
};

// The chunks of one sequence are neighbours; those of the i-th sequence begin at first[i].
struct ChunkPlan {
  std::span<Chunk> chunks;
  std::span<std::int64_t> first;
  std::int64_t partial_rows = 0, most_rows = 0;
};

inline ChunkPlan make_chunks(const AttentionCall& call, std::span<const std::int64_t> sequences,
                             Workspace::Frame& frame) {
  std::int64_t count = 0;
  for (std::int64_t index : sequences) {
    const std::int64_t n_k = sequence_of(call.args, index).n_k;
    count += std::max<std::int64_t>(1, ceil_div(n_k, chunk_size(n_k)));
  }
  ChunkPlan plan;
  plan.chunks = {frame.take<Chunk>(count), static_cast<std::size_t>(count)};
  plan.first = {frame.take<std::int64_t>(std::ssize(sequences) + 1), sequences.size() + 1};
  std::size_t filled = 0;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const Sequence s = sequence_of(call.args, sequences[i]);
    const std::int64_t size = chunk_size(s.n_k);
    plan.first[i] = static_cast<std::int64_t>(filled);
    for (std::int64_t begin = 0; begin == 0 || begin < s.n_k; begin += size) {
      plan.chunks[filled++] = {s.index, begin, std::min(begin + size, s.n_k), plan.partial_rows};
      if (s.n_k > size) plan.partial_rows += s.n_q * call.heads;
    }
    plan.most_rows = std::max(plan.most_rows, s.n_q * call.group);
  }
  plan.first.back() = count;
  return plan;
}

}  // namespace tessera::cpu
