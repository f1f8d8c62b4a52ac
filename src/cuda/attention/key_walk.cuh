// Which keys some queries visit, tile by tile, and which of them each query sees. Positions are
// ints here: longer sequences are left to the plain kernel.
#pragma once

#include <climits>
#include <cstdint>

#include "cuda/attention/tensor_core.h"
#include "cuda/attention_call.h"

namespace tessera::cuda {

inline constexpr int kMostKeysOfTile = 64;  // one bit each of a word

// The keys that queries [q0, q1) of a sequence see, in tiles, in rising order:
//
//   for (int k0 = walk.next(mask, 0, n); k0 < walk.end; k0 = walk.next(mask, k0 + n, n))
//
// For all masks but blocks, which are a band of keys and the sinks before it, a question takes a
// few comparisons. Plain numbers, so that a walk can lie in shared memory and takes no registers.
struct KeyWalk {
  int q0, q1, shift, n_k;
  int left, right;  // of the mask's band; -1: open
  int begin, end;   // the keys of the band that some query sees; with sinks, at least these
  int full_begin, full_end;  // those that every query sees
  int sinks;                 // the first keys, which some query sees beside the band

  __device__ void start(const MaskView& mask, const Sequence& s, int first_query, int last_query) {
    q0 = first_query;
    q1 = last_query + 1;
    shift = static_cast<int>(s.shift());
    n_k = static_cast<int>(s.n_k);
    left = static_cast<int>(std::min<std::int64_t>(mask.left, kMostPositions));
    right = static_cast<int>(std::min<std::int64_t>(mask.right, kMostPositions));
    const int p0 = q0 + shift, p1 = last_query + shift;
    begin = left < 0 ? 0 : clamped(p0 - left);
    full_begin = left < 0 ? 0 : clamped(p1 - left);
    full_end = right < 0 ? n_k : clamped(p0 + right + 1);
    sinks = mask.kind == Mask::Kind::sinks ? std::min(clamped(mask.n_sink), clamped(p1 + 1)) : 0;
    end = std::max(sinks, right < 0 ? n_k : clamped(p1 + right + 1));
  }

  // The first tile of n keys from key k on, a multiple of n; INT_MAX: there is none.
  __device__ int next(const MaskView& mask, int k, int n) const {
    if (k >= end) return INT_MAX;
    if (mask.kind == Mask::Kind::blocks) {
      const std::int64_t key = mask.next_visible(q0, q1, k, shift);
      return key >= end ? INT_MAX : static_cast<int>(key) / n * n;
    }
    return k < sinks ? k : std::max(k, begin / n * n);
  }

  // Whether some query sees some key of the n from k0 on.
  __device__ bool visits(const MaskView& mask, int k0, int n) const {
    if (k0 < sinks) return true;
    if (k0 >= end || k0 + n <= begin) return false;
    return mask.kind != Mask::Kind::blocks ||
           mask.classify(q0, q1, k0, std::min(k0 + n, n_k), shift) != TileState::skip;
  }
  // Whether every query sees every one of them.
  __device__ bool full(const MaskView& mask, int k0, int n) const {
    if (k0 < full_begin || k0 + n > full_end) return false;
    return mask.kind != Mask::Kind::blocks ||
           mask.classify(q0, q1, k0, k0 + n, shift) == TileState::full;
  }

  // Bit b: does query i see key k0 + b?
  __device__ std::uint64_t seen(const MaskView& mask, int i, int k0) const {
    const int p = i + shift;
    const auto up_to = [&](int key) { return ones(clamped(key) - k0); };
    std::uint64_t bits = right < 0 ? up_to(n_k) : up_to(p + right + 1);
    if (left >= 0) bits &= ~up_to(p - left);
    if (mask.kind == Mask::Kind::sinks) bits |= up_to(std::min(clamped(mask.n_sink), p + 1));
    return mask.kind == Mask::Kind::blocks ? bits & pattern(mask, i, k0) : bits;
  }

 private:
  // A key's number, or the end of the sequence that it lies beyond.
  __device__ int clamped(std::int64_t key) const {
    return static_cast<int>(std::min<std::int64_t>(std::max<std::int64_t>(key, 0), n_k));
  }
  // The lowest n bits.
  __device__ static std::uint64_t ones(int n) {
    return n <= 0 ? 0 : n >= kMostKeysOfTile ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1;
  }
  // The keys that the block pattern lets query i see.
  __device__ std::uint64_t pattern(const MaskView& mask, int i, int k0) const {
    std::uint64_t bits = 0;
    const int last = std::min(k0 + kMostKeysOfTile, n_k) - 1;
    const auto block = static_cast<int>(std::min<std::int64_t>(mask.block, kMostPositions));
    for (int b = k0 / block; b <= last / block; ++b) {
      if (!mask.sees_block(i / block, b)) continue;
      bits |= ones((b + 1) * block - k0) & ~ones(b * block - k0);
    }
    return bits;
  }
};

}  // namespace tessera::cuda
