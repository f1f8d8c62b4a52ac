// A tile of the portable kernel for the gradients of attention: a block's shared memory, which
// tiles it visits, and which of their pairs see each other.
#pragma once

#include <climits>
#include <cstdint>

#include "cuda/attention/backward/rows.h"
#include "cuda/attention/portable/fragments.cuh"
#include "cuda/attention/portable/key_tile_loop.cuh"

namespace tessera::cuda::backward {

enum class Side { queries, keys };  // whose gradients a block sums up

inline constexpr int kWarps = 4, kThreads = 32 * kWarps;
inline constexpr int kOther = 32;  // rows of the tiles that a block goes over

// A warp uses each element that it reads for two tiles of 16 rows. With heads wider than 64, the
// sums of two tiles would not fit into registers.
constexpr int own_tiles(int dim) { return dim <= 64 ? 2 : 1; }
constexpr int own_rows(int dim) { return 16 * own_tiles(dim) * kWarps; }

template <int dim>
struct Shared {
  static constexpr int kRowBytes = PaddedRows<dim>::kRowBytes, kOwn = own_rows(dim);
  unsigned char own[2][kOwn * kRowBytes];
  unsigned char other[2][2][kOther * kRowBytes];  // [place][tensor]
  float exponent[2][kOther], delta[2][kOther];    // of other rows that are queries
  // Bit b of a word: key b of 32. A query of the own rows has one word, one of the other rows kOwn
  // / 32.
  std::uint32_t seen[kOwn], kept[kOwn];
  KeyTileLoop loop;
  SmallSequence sequence;
  int kv_head, begin, size;  // of the own rows
};

// Rows of a head group as queries and heads, or keys: where they lie.
template <typename T>
struct Place {
  const AttentionCall& call;
  const SmallSequence& sequence;
  int kv_head;

  __device__ T* query(const HeadRows& rows, int r) const {
    const int group = static_cast<int>(call.group);
    return call.query_row<T>(rows, sequence, r / group, kv_head * call.group + r % group);
  }
  __device__ T* key(const HeadRows& rows, int j) const {
    return call.key_row<T>(rows, sequence, j, kv_head);
  }
};

// Where the values of query row r lie.
__device__ inline std::int64_t value_at(const AttentionCall& call, const RowValues& values,
                                        const SmallSequence& s, int kv_head, int r) {
  const int group = static_cast<int>(call.group);
  const std::int64_t head = kv_head * call.group + r % group;
  return (s.q_batch * call.heads + head) * values.rows + s.q_begin + r / group;
}

// The tiles of query rows that see some of the keys [k0, k1).
struct RowTileLoop {
  const MaskView& mask;
  int group, n_rows, shift, k0, k1;
  int begin, end;  // rows outside see no key, whatever the pattern

  __device__ RowTileLoop(const AttentionCall& call, const SmallSequence& s, int first_key,
                         int last_key)
      : mask(call.mask),
        group(static_cast<int>(call.group)),
        n_rows(s.n_q * group),
        shift(s.shift()),
        k0(first_key),
        k1(last_key + 1),
        begin(0),
        end(n_rows) {
    const auto row_of = [&](std::int64_t position) {  // its first row, within the sequence
      const std::int64_t query =
          std::min<std::int64_t>(std::max<std::int64_t>(position - shift, 0), n_rows / group);
      return static_cast<int>(query) * group;
    };
    if (mask.right >= 0) begin = row_of(k0 - mask.right) / kOther * kOther;
    if (mask.left >= 0 && k0 >= mask.n_sink) end = row_of(k1 + mask.left);
  }
  __device__ TileState state(int r) const {
    const int last = std::min(r + kOther, n_rows) - 1;
    return mask.classify(r / group, last / group + 1, k0, k1, shift);
  }
  // The first tile from row r on, a multiple of kOther; INT_MAX if there is none.
  __device__ int next(int r) const {
    for (r = std::max(r, begin); r < end; r += kOther) {
      if (state(r) != TileState::skip) return r;
    }
    return INT_MAX;
  }
};

// Finds the words of the tile of rows from r0 on and keys from k0 on, one to a thread.
template <int dim, Side side>
__device__ void find_bits(const AttentionCall& call, Shared<dim>& shared, int r0, int k0) {
  constexpr int kWords = side == Side::queries ? 1 : Shared<dim>::kOwn / 32;
  const int word = static_cast<int>(threadIdx.x), group = static_cast<int>(call.group);
  if (word >= Shared<dim>::kOwn) return;
  const SmallSequence& s = shared.sequence;
  const int row = r0 + word / kWords, k = k0 + 32 * (word % kWords);
  const bool there = row < s.n_q * group;
  shared.seen[word] = there ? static_cast<std::uint32_t>(shared.loop.seen(row / group, k)) : 0u;
  if (!call.dropping) return;
  const auto u32 = [](std::int64_t x) { return static_cast<std::uint32_t>(x); };
  std::uint32_t kept = 0;
#pragma unroll 1
  for (int four = 0; four < 8; ++four) {
    const PhiloxWords words =
        dropout_words(call.seed, u32(s.index), u32(shared.kv_head * call.group + row % group),
                      u32(row / group), u32(k + 4 * four));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      kept |= (words[i] >= call.dropout_threshold ? 1u : 0u) << (4 * four + i);
    }
  }
  shared.kept[word] = kept;
}

}  // namespace tessera::cuda::backward
