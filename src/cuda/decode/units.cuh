// Kinds of weights in the persistent kernel. A unit is the part of a weight that a warp multiplies
// at once. A lane copies its own bytes of it (cp.async), and only that lane reads them, so it waits
// only for its own copies.
//
// The tensor cores multiply, although there is only one token. Instead of eight tokens, each of
// their eight columns has x at some of the depths. The rest of a column is zeros, or leads to sums
// that are not read.
#pragma once

#include <cstdint>

#include "cuda/decode/call.h"
#include "cuda/linear/layout/fragments.cuh"
#include "cuda/linear/layout/scales.cuh"
#include "cuda/linear/layout/tile_layout.h"
#include "cuda/tile/cp_async.cuh"
#include "cuda/tile/cp_async_word.cuh"
#include "cuda/tile/element.cuh"
#include "cuda/tile/mma.cuh"
#include "cuda/tile/warp.cuh"

namespace tessera::cuda::decode {

// Numbers of E4M3 as f16. From sm_89 on there is an instruction for two.
__device__ inline void e4m3_as_f16(std::uint32_t codes, Halves (&halves)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %2;"
      "cvt.rn.f16x2.e4m3x2 %0, low; cvt.rn.f16x2.e4m3x2 %1, high;}"
      : "=r"(halves[0]), "=r"(halves[1])
      : "r"(codes));
#else
  constexpr Halves k256 = 0x5c005c00u;
  e4m3_halves(codes, halves, Half{});  // times 2^-8
  for (Halves& both : halves) both = multiply<Half>(both, k256);
#endif
}

// E2M1 tiles of 16 rows (tile_layout.h). A unit is a pair of slabs, 128 deep. A lane of A has a
// block of 16 weights of two rows in each slab, and each block has a scale. To apply a scale to the
// sum of its block, each block has its own column (linear/portable/stream_one_token.cuh):
//
//   column         0   1   2   3   4   5   6   7
//   lanes t = 0    x   x'                            x: of slab 0
//             1            x   x'                    x': of slab 1; elsewhere are zeros
//             2                    x   x'
//             3                            x   x'
template <Format F, typename T>
struct TileWeights {
  using Element = T;
  static_assert(F == Format::nvfp4);  // other formats need row scales too
  static constexpr Format kFormat = F;
  static constexpr int kRows = kTileHeight, kDepth = kPair;
  static constexpr int kCodeBytes = kRows * kDepth / 2;
  static constexpr int kScaleBytes = 128;  // a word for each lane
  static constexpr int kUnitBytes = kCodeBytes + kScaleBytes;
  static constexpr int kUnits = kRingBytesOfWarp / kUnitBytes;
  // Zeros before x, read as a lane's share of a slab if its column has none.
  static constexpr int kZeros = 16;
  // A weight of one is 2^-14 as f16 (fragments.cuh).
  static constexpr float kOfSums = 0x1p14f;

  struct Unit {
    uint4 codes[2];
    std::uint32_t scales;  // of rows g and g + 8 in slab 0, then in slab 1
  };
  __device__ static Unit read(const char* from, int lane) {
    return {{*reinterpret_cast<const uint4*>(from + lane * 16),
             *reinterpret_cast<const uint4*>(from + 512 + lane * 16)},
            *reinterpret_cast<const std::uint32_t*>(from + kCodeBytes + lane * 4)};
  }
  // codes, scales: of the lane.
  __device__ static void ask(char* to, const char* codes, const char* scales, int lane) {
    copy_async(to + lane * 16, codes, true);
    copy_async(to + 512 + lane * 16, codes + 512, true);
    copy_async_word(to + kCodeBytes + lane * 4, scales);
  }

  // A warp's sums of its current task, of rows g and g + 8: the sums of the lane's blocks.
  struct Sums {
    const char* first;  // the lane's part of x, or zeros
    const char* at;
    int step;  // from unit to unit, in bytes: zeros stay where they are
    float sums[2][2] = {};

    struct X {
      uint4 low, high;
    };

    __device__ Sums(const T* x, int lane) {
      const int t = lane % 4, column = lane / 4;
      const bool mine = column / 2 == t;
      first = at = reinterpret_cast<const char*>(x) +
                   (mine ? t * 32 + column % 2 * (kSlab * 2) : -2 * kZeros);
      step = mine ? kDepth * 2 : 0;
    }
    __device__ void start(int unit) { at = first + unit * step; }
    __device__ X next_x() {
      const auto* from = reinterpret_cast<const uint4*>(at);
      at += step;
      return {from[0], from[1]};
    }
    __device__ void multiply(const Unit& unit, const X& x) {
      const Halves b[4][2] = {
          {x.low.x, x.low.y}, {x.low.z, x.low.w}, {x.high.x, x.high.y}, {x.high.z, x.high.w}};
      Halves scales[2];
      e4m3_as_f16(unit.scales, scales);
#pragma unroll
      for (int slab = 0; slab < 2; ++slab) {
        std::uint32_t words[4];
        store_words(unit.codes[slab], words);
        Fragments a;
        TileFormat<F, T>::decode(words, DecodeState{}, a);
        float products[4] = {};
#pragma unroll
        for (int j = 0; j < 4; ++j) mma_16x8x16(products, a[j], b[j], T{});
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          sums[slab][side] += to_f32(Half{static_cast<std::uint16_t>(scales[slab] >> 16 * side)}) *
                              products[2 * side + slab];
        }
      }
    }
    __device__ void put(float* slot, int lane) {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        float sum = sums[0][side] + sums[1][side];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (lane % 4 == 0) slot[lane / 4 + 8 * side] = sum;
        sums[0][side] = sums[1][side] = 0;
      }
    }
  };
};

// Dense rows. A unit is 256 neighbours of one row, eight in each lane. Lane 4 g + t of A has its
// weights in rows g and g + 8, and the same lane of B has its x in column g. A lane's weights meet
// its own x on the diagonals of D, and only these count.
//
//   D1 = A B1, D2 = A B2            a: weights (0 1), (2 3), (4 5), (6 7) of the lane
//   row g     a0 x b0 + a2 x b1     of D1, with b: x (0 1), (4 5)
//   row g + 8 a1 x b0 + a3 x b1     of D2, with b: x (2 3), (6 7)
template <typename T>
struct RowWeights {
  using Element = T;
  static constexpr Format kFormat = Format::dense;
  static constexpr int kRows = 1, kDepth = 256;
  static constexpr int kCodeBytes = kDepth * 2, kScaleBytes = 0, kUnitBytes = kCodeBytes;
  static constexpr int kUnits = kRingBytesOfWarp / kUnitBytes;
  static constexpr int kZeros = 0;
  static constexpr float kOfSums = 1;

  using Unit = uint4;
  __device__ static Unit read(const char* from, int lane) {
    return *reinterpret_cast<const uint4*>(from + lane * 16);
  }
  __device__ static void ask(char* to, const char* codes, const char* /*scales*/, int lane) {
    copy_async(to + lane * 16, codes, true);
  }

  struct Sums {
    using X = uint4;
    const uint4 *first, *at;
    float products[2][4] = {};

    __device__ Sums(const T* x, int lane)
        : first(reinterpret_cast<const uint4*>(x) + lane), at(first) {}
    __device__ void start(int unit) { at = first + unit * (kDepth / 8); }
    __device__ X next_x() {
      const uint4 x = *at;
      at += kDepth / 8;
      return x;
    }
    __device__ void multiply(const Unit& unit, const X& x) {
      const Halves a[4] = {unit.x, unit.y, unit.z, unit.w};
      const Halves b[2][2] = {{x.x, x.z}, {x.y, x.w}};
      mma_16x8x16(products[0], a, b[0], T{});
      mma_16x8x16(products[1], a, b[1], T{});
    }
    __device__ void put(float* slot, int lane) {
      const int t = lane % 4, g = lane / 4;  // column g is in lane g / 2 of row g
      const float of_g =
          g % 2 == 0 ? products[0][0] + products[1][2] : products[0][1] + products[1][3];
      const float sum = warp_reduce(g / 2 == t ? of_g : 0.f, Sum());
      if (lane == 0) *slot = sum;
#pragma unroll
      for (auto& each : products) each[0] = each[1] = each[2] = each[3] = 0;
    }
  };
};

}  // namespace tessera::cuda::decode
