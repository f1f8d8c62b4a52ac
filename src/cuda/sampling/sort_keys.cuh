// Elements of a row as 64-bit keys. The order of select.h (NaN first, then falling values, then
// rising indices) is their falling order:
//
//   63                    32 31                     0
//   [ value, made sortable ] [ ~index             ]
#pragma once

#include <cstdint>

#include "cuda/tile/block_reduce.cuh"
#include "cuda/tile/element.cuh"
#include "cuda/tile/piece.cuh"

namespace tessera::cuda {

using Key = unsigned long long;

inline constexpr std::uint32_t kNanBits = 0xfffffffeu;       // above +inf
inline constexpr std::uint32_t kInfinityBits = 0xff800000u;  // +inf, made sortable
inline constexpr std::uint32_t kLeastBits = 0x007fffffu;     // -inf

__device__ inline Key key_of(float value, std::int64_t index) {
  std::uint32_t bits = __float_as_uint(value + 0.f);  // -0 becomes +0
  bits = bits >> 31 ? ~bits : bits | 0x80000000u;     // negative numbers run backwards
  if (isnan(value)) bits = kNanBits;
  return static_cast<Key>(bits) << 32 | static_cast<std::uint32_t>(~index);
}

__device__ inline std::int64_t index_of(Key key) { return static_cast<std::uint32_t>(~key); }
__device__ inline std::uint32_t value_bits(Key key) {
  return static_cast<std::uint32_t>(key >> 32);
}
// The value of a key that is not a NaN's.
__device__ inline float value_of(Key key) {
  const std::uint32_t bits = value_bits(key);
  return __uint_as_float(bits >> 31 ? bits & 0x7fffffffu : ~bits);
}

// Elements [begin, end) of a row: 16 bytes at a time if they are aligned.
template <typename T>
struct ElementKeys {
  const T* row;
  std::int64_t begin, end;

  template <typename F>
  __device__ void for_each(F&& fn) const {
    for_each_value([&](float value, std::int64_t index) { fn(key_of(value, index)); });
  }
  // fn(value, index)
  template <typename F>
  __device__ void for_each_value(F&& fn) const {
    constexpr int kSize = Piece<T>::kSize;
    std::int64_t done = begin;  // up to here elements were in whole pieces
    if (reinterpret_cast<std::uintptr_t>(row + begin) % kPieceBytes == 0) {
      const std::int64_t pieces = (end - begin) / kSize;
#pragma unroll 4  // so that several loads are in flight
      for (std::int64_t p = threadIdx.x; p < pieces; p += blockDim.x) {
        const std::int64_t at = begin + p * kSize;
        const Piece<T> piece = load_piece(row + at);
#pragma unroll
        for (int i = 0; i < kSize; ++i) fn(piece[i], at + i);
      }
      done += pieces * kSize;
    }
    for (std::int64_t i = done + threadIdx.x; i < end; i += blockDim.x) {
      fn(to_f32(row[i]), i);
    }
  }
};

// Sorts keys[0 .. size), a power of two, largest first: bitonic. Pairs up to 32 apart lie among the
// 64 keys of one warp's 32 pairs, so that only steps over wider pairs need the whole block.
__device__ inline void sort_falling(Key* keys, int size) {
  const auto step = static_cast<int>(blockDim.x);
  bool wide = true;  // the step before
  for (int run = 2; run <= size; run *= 2) {
    for (int distance = run / 2; distance > 0; distance /= 2) {
      if (wide || distance > kWarp) {
        __syncthreads();
      } else {
        __syncwarp();
      }
      wide = distance > kWarp;
      for (int i = static_cast<int>(threadIdx.x); i < size / 2; i += step) {
        const int within = i & (distance - 1), a = 2 * (i - within) + within, b = a + distance;
        const bool falls = (a & run) == 0;
        const Key first = keys[a], second = keys[b];
        if ((first < second) == falls) {
          keys[a] = second;
          keys[b] = first;
        }
      }
    }
  }
  __syncthreads();
}

}  // namespace tessera::cuda
