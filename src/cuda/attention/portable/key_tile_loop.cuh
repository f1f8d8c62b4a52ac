// The loop over the key tiles that some queries visit, and which of their keys each query sees.
// Positions are ints; the plain kernel runs longer sequences.
#pragma once

#include <algorithm>
#include <climits>
#include <cstdint>

#include "cuda/attention/call.h"
#include "cuda/attention/portable/small_sequence.cuh"

namespace tessera::cuda {

inline constexpr int kKeysOfWord = 64;  // one bit each

// The keys that queries [q0, q1) of a sequence see, in tiles of n, in rising order:
//
//   KeyTileLoop::Cursor cursor;
//   for (int k0 = loop.next(0, n, cursor); k0 < loop.end; k0 = loop.next(k0 + n, n, cursor))
//
// All masks but block patterns are a band of keys with the sinks before it, so a query of the mask
// takes a few comparisons. So does one where all queries lie in one row of a pattern whose blocks
// are whole tiles. The members are plain numbers, so that a loop can live in shared memory and take
// no registers.
struct KeyTileLoop {
  int q0, q1, shift, n_k;
  int left, right, n_sink;   // of the mask; left and right -1: open
  int begin, end;            // keys of the band that some query sees; `end` is after the sinks too
  int full_begin, full_end;  // the keys that every query sees
  int sinks;                 // the first keys, which some query sees besides the band

  // Of a pattern of blocks.
  bool blocks, one_row;  // whether there is one; all queries are in one row of whole tiles
  int block, row0, row1, q_blocks;  // keys of a block; rows of the pattern, both ends included
  const std::int64_t* offsets;
  const std::int32_t* indices;

  // The position of a loop over one row of a pattern.
  struct Cursor {
    int at = -1, end = 0;  // the next of the row's blocks
    int block_end = 0;     // of the current one, in keys
  };

  // Whether these queries lie in one row of a pattern whose blocks are whole tiles.
  __device__ static bool lie_in_one_row(const MaskView& mask, int first_query, int last_query,
                                        int tile_keys) {
    if (mask.kind != Mask::Kind::blocks) return false;
    const auto size = static_cast<int>(mask.block);
    return first_query / size == last_query / size && size % tile_keys == 0;
  }

  // `tiles_of_one_row`: lie_in_one_row() holds, and callers pass only tiles that next() returned.
  __device__ void start(const MaskView& mask, const SmallSequence& s, int first_query,
                        int last_query, bool tiles_of_one_row) {
    q0 = first_query;
    q1 = last_query + 1;
    shift = s.shift();
    n_k = s.n_k;
    left = static_cast<int>(mask.left);
    right = static_cast<int>(mask.right);
    n_sink = static_cast<int>(mask.n_sink);
    const int p0 = q0 + shift, p1 = last_query + shift;
    begin = left < 0 ? 0 : clamped(p0 - left);
    full_begin = left < 0 ? 0 : clamped(p1 - left);
    full_end = right < 0 ? n_k : clamped(p0 + right + 1);
    sinks = std::min(clamped(n_sink), clamped(p1 + 1));
    end = std::max(sinks, right < 0 ? n_k : clamped(p1 + right + 1));
    blocks = mask.kind == Mask::Kind::blocks;
    one_row = tiles_of_one_row;
    if (!blocks) return;
    block = static_cast<int>(mask.block);
    row0 = q0 / block;
    row1 = last_query / block;
    q_blocks = static_cast<int>(mask.q_blocks);
    offsets = mask.offsets;
    indices = mask.indices;
  }

  // The first tile of n keys from key k on, a multiple of n; INT_MAX if there is none.
  __device__ int next(int k, int n, Cursor& cursor) const {
    if (k >= end) return INT_MAX;
    if (!blocks) return k < sinks ? k : std::max(k, begin / n * n);
    const int key = one_row ? next_of_row(k, cursor) : next_of_rows(k);
    return key >= end ? INT_MAX : key / n * n;
  }

  // Whether some query sees some key of the n from k0 on.
  __device__ bool visits(int k0, int n) const {
    if (k0 < sinks) return true;
    if (k0 >= end || k0 + n <= begin) return false;
    return !blocks || one_row || in_pattern(k0, n) != TileState::skip;
  }
  // Whether every query sees all n keys from k0 on.
  __device__ bool full(int k0, int n) const {
    if (k0 < full_begin || k0 + n > full_end) return false;
    return !blocks || one_row || in_pattern(k0, n) == TileState::full;
  }

  // Bit b: whether query i sees key k0 + b.
  __device__ std::uint64_t seen(int i, int k0) const {
    const int p = i + shift;
    const auto up_to = [&](int key) { return ones(clamped(key) - k0); };
    std::uint64_t bits = right < 0 ? up_to(n_k) : up_to(p + right + 1);
    if (left >= 0) bits &= ~up_to(p - left);
    if (sinks > 0) bits |= up_to(lesser(n_sink, p + 1));
    return blocks && !one_row ? bits & pattern(i, k0) : bits;
  }

 private:
  // A key's number, clamped to the sequence.
  __device__ int clamped(int key) const { return lesser(std::max(key, 0), n_k); }
  // By value: std::min takes addresses, and here the two may point to different kinds of memory.
  __device__ static int lesser(int a, int b) { return a < b ? a : b; }
  // The lowest n bits.
  __device__ static std::uint64_t ones(int n) {
    return n <= 0 ? 0 : n >= kKeysOfWord ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1;
  }

  // ---- patterns of blocks. The longer functions are not inlined: even code that most calls skip
  // has to be loaded, and a kernel of a few microseconds waits for its instructions.

  struct BlockRow {
    const std::int32_t *begin, *end;

    // The first block of the row that is not before k_block.
    __device__ const std::int32_t* from(int k_block) const {
      const std::int32_t *low = begin, *high = end;
      while (low != high) {
        const std::int32_t* middle = low + (high - low) / 2;
        if (*middle < k_block) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      return low;
    }
  };
  // The first key of a block, clamped to the end of the sequence. A pattern may be larger than the
  // sequence; the product then may not fit an int.
  __device__ int first_key(std::int32_t k_block) const {
    const std::int64_t key = std::int64_t{k_block} * block;
    return key < n_k ? static_cast<int>(key) : n_k;
  }
  // A row outside the pattern is empty. On a GPU, the host may not have been able to rule such rows
  // out.
  __device__ BlockRow row_of(int row) const {
    if (row >= q_blocks) return {indices, indices};
    return {indices + offsets[row], indices + offsets[row + 1]};
  }

  __device__ int next_of_row(int k, Cursor& cursor) const {
    if (k < cursor.block_end) return k;
    if (cursor.at < 0) {
      const BlockRow row = row_of(row0);
      cursor.at = static_cast<int>(row.begin - indices);
      cursor.end = static_cast<int>(row.end - indices);
    }
    if (cursor.at == cursor.end) return INT_MAX;
    const int key = first_key(indices[cursor.at++]);
    cursor.block_end = key + block;
    return key;
  }
  __device__ __noinline__ int next_of_rows(int k) const {
    int found = INT_MAX;
    for (int r = row0; r <= row1; ++r) {
      const BlockRow row = row_of(r);
      const std::int32_t* at = row.from(k / block);
      if (at != row.end) found = std::min(found, *at);
    }
    return found == INT_MAX ? INT_MAX : std::max(k, first_key(found));
  }
  // Whether none, all or some of the tile's blocks are in the pattern.
  __device__ __noinline__ TileState in_pattern(int k0, int n) const {
    const int first = k0 / block, last = (lesser(k0 + n, n_k) - 1) / block;
    bool none = true, all = true;
    for (int r = row0; r <= row1; ++r) {
      const BlockRow row = row_of(r);
      const auto count = static_cast<int>(row.from(last + 1) - row.from(first));
      none = none && count == 0;
      all = all && count == last - first + 1;
    }
    return none ? TileState::skip : all ? TileState::full : TileState::partial;
  }
  // The keys, from k0 on, that the pattern lets query i see, one bit each.
  __device__ __noinline__ std::uint64_t pattern(int i, int k0) const {
    std::uint64_t bits = 0;
    const BlockRow row = row_of(i / block);
    const int last = lesser(k0 + kKeysOfWord, n_k) - 1;
    for (const std::int32_t* at = row.from(k0 / block); at != row.end; ++at) {
      const int key = first_key(*at);
      if (key > last) break;
      bits |= ones(key + block - k0) & ~ones(key - k0);
    }
    return bits;
  }
};

// The steps of a sequence, `keys` keys each: first the sinks' steps, if any, then the band's.
template <int keys>
struct KeySteps {
  int sink_steps, begin, count;

  __device__ explicit KeySteps(const KeyTileLoop& loop) {
    sink_steps = (loop.sinks + keys - 1) / keys;
    begin = std::max(loop.begin / keys, sink_steps);
    count = sink_steps + std::max(0, (loop.end + keys - 1) / keys - begin);
  }
  // The first key of step i.
  __device__ int key(int i) const { return keys * (i < sink_steps ? i : begin + i - sink_steps); }
};

}  // namespace tessera::cuda
