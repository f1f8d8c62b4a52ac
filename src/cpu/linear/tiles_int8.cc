// Tiled weights times 8-bit activations: integer dot products, one f32 sum for each block of 32.
//
//   weight tile, block b: K 32 x N 16          x, block b: 32 bytes and a scale for each token
//
//     codes --> steps[0 .. 7], in registers    token 0  |q0..q31|s|
//               [K 4 x N 16] each              token 1  |q0..q31|s|
//                     |                           ...
//                     +-- dot8 with each token --> sum [N 16] i32
//                                                  out[m] += sum * weight scale * s
//
// A block of the weight is decoded once for all tokens. With one token, the kernel is bound by the
// memory that the weight comes from. With many, it is bound by the dot products: 8 of them, beside
// two multiplications (nvfp4: three) with the scales. AVX-512 takes two weight tiles at a time,
// because it would otherwise wait for the loads that broadcast x, and two tokens, because it would
// otherwise wait for the previous dot product.
//
// int8 with zero points: sum (code - zero) q = sum code q - zero * sum q, all in whole numbers. x
// is then packed with -sum q, and a dot product starts from zero * -sum q.
#include <algorithm>
#include <type_traits>

#include "core/checked.h"
#include "core/processors.h"
#include "core/type_switch.h"
#include "cpu/linear/kernels.h"
#include "cpu/linear/prefetch.h"
#include "cpu/linear/weight_tiles.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/linear/tiles_int8.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/linear/quantize_activations-inl.h"
#include "cpu/linear/tile_codec-inl.h"
#include "cpu/simd/dot8-inl.h"
#include "cpu/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

// x is packed as [blocks][tokens]: the activations for one block of the weight are neighbours.
ActivationBlock* blocks_of(const PackedInput& x) {
  return reinterpret_cast<ActivationBlock*>(x.data);
}

// Each packed block holds -offset times its sum, from which its dot products start.
void pack(const Rows& x, DType dtype, std::int64_t m0, std::int64_t m_size, int offset,
          PackedInput& to) {
  with_float_type(dtype, [&](auto type) HWY_ATTR {
    for (std::int64_t m = m0; m < m0 + m_size; ++m) {
      quantize_row(x.row<const decltype(type)>(m), static_cast<std::size_t>(to.k_size), offset,
                   blocks_of(to) + m, static_cast<std::size_t>(to.m_size));
    }
  });
}

// Weight tiles that are multiplied together and share the broadcasts of x. In 32 registers, two
// blocks of eight steps fit.
constexpr int kTiles = kSlices == 1 ? 2 : 1;
static_assert(kTileN % (kTiles * kWeightTileN) == 0);

// One decoded block of a slice of kTiles tiles: the first of each. `zeros`: int8 with zero points.
template <Format format, bool zeros>
struct DecodedBlock {
  static constexpr int kOffset = dot8_offset(range_of(format));

  HWY_INLINE DecodedBlock(const Tile (&tiles)[kTiles], int slice) {
    for (int t = 0; t < kTiles; ++t) {
      decode_block<format, kOffset>(tiles[t], 0, slice, steps[t]);
      load_block_scales<format>(tiles[t], 0, slice, scales[t]);
      if constexpr (zeros) {
        shifted_zeros[t] =
            hn::Add(load_zeros<std::int8_t>(tiles[t], 0, slice), hn::Set(I32(), kOffset));
      }
    }
  }

  // Where the dot products of a tile start, given the start that x was packed with.
  HWY_INLINE VI32 start_of([[maybe_unused]] int tile, std::int32_t start) const {
    if constexpr (zeros) return hn::Mul(hn::Set(I32(), start), shifted_zeros[tile]);
    return hn::Set(I32(), start);
  }

  VI32 steps[kTiles][kSteps];
  VF32 scales[kTiles][2];
  VI32 shifted_zeros[kTiles];
};

// Dot products of the steps [first, first + n) with a block of each row, x[r] and `start` of it.
template <Format format, int first, int n, int rows, bool zeros, typename Start>
HWY_INLINE void dot(const DecodedBlock<format, zeros>& w, const ActivationBlock* x,
                    const Start& start, VF32 (&dots)[rows][kTiles]) {
  const VI32* steps[kTiles];
  const std::int8_t* q[rows];
  VI32 sums[rows][kTiles];
  for (int t = 0; t < kTiles; ++t) steps[t] = w.steps[t] + first;
  for (int r = 0; r < rows; ++r) {
    q[r] = x[r].q + 4 * first;
    for (int t = 0; t < kTiles; ++t) sums[r][t] = w.start_of(t, start(x[r]));
  }
  dot8<range_of(format), n>(I32(), steps, q, sums);
  for (int r = 0; r < rows; ++r) {
    for (int t = 0; t < kTiles; ++t) dots[r][t] = hn::ConvertTo(F32(), sums[r][t]);
  }
}

// out[r][t] += the block's dot products with x[r], times the scales of both. A row's result does
// not depend on the rows beside it.
template <int rows, Format format, bool zeros>
HWY_INLINE void multiply_add(const DecodedBlock<format, zeros>& w, const ActivationBlock* x,
                             float* out) {
  const F32 d;
  VF32 dots[rows][kTiles];
  if constexpr (format == Format::nvfp4) {  // two scales to a block
    VF32 high[rows][kTiles];
    const auto half = [](int i) {
      return [i](const ActivationBlock& of) { return of.start_of_half[i]; };
    };
    dot<format, 0, kSteps / 2>(w, x, half(0), dots);
    dot<format, kSteps / 2, kSteps / 2>(w, x, half(1), high);
    for (int r = 0; r < rows; ++r) {
      for (int t = 0; t < kTiles; ++t) {
        float* to = out + r * kTileN + t * kWeightTileN;
        const VF32 sum =
            hn::MulAdd(dots[r][t], w.scales[t][0], hn::Mul(high[r][t], w.scales[t][1]));
        hn::StoreU(hn::MulAdd(sum, hn::Set(d, x[r].scale), hn::LoadU(d, to)), d, to);
      }
    }
  } else {  // the scale of x first: that of a weight can be as large as any f32
    dot<format, 0, kSteps>(
        w, x, [](const ActivationBlock& of) { return of.start; }, dots);
    for (int r = 0; r < rows; ++r) {
      for (int t = 0; t < kTiles; ++t) {
        float* to = out + r * kTileN + t * kWeightTileN;
        const VF32 sum = hn::Mul(dots[r][t], hn::Set(d, x[r].scale));
        hn::StoreU(hn::MulAdd(sum, w.scales[t][0], hn::LoadU(d, to)), d, to);
      }
    }
  }
}

// Scales of a row in a block, or in a group of blocks.
constexpr std::int64_t scales_of(Format format) { return format == Format::nvfp4 ? 2 : 1; }

// How many blocks ahead to prefetch: 4 KB. Memory takes as long as four blocks do, and longer when
// it is busy. (A distance of a whole pair of tiles is as fast between tiles. But then nothing
// prefetches the first pair of a run, and a pair of long rows does not fit the L1 cache.)
constexpr std::int64_t blocks_ahead(Format format) { return 4096 / block_bytes(format); }

// The distance in bytes to the codes and scales of the block to prefetch.
struct Ahead {
  std::int64_t codes, scales;
};

// Prefetches the block that lies `ahead` of the tile's current one.
template <Format format, Cache to>
HWY_INLINE void prefetch_block(const Tile& tile, const Ahead& ahead) {
  for (std::int64_t byte = 0; byte < block_bytes(format); byte += kStepBytes) {
    prefetch<to>(tile.codes + byte, ahead.codes);
  }
  // At most a cache line, and often a part of one, which is then requested more than once.
  prefetch<to>(tile.scales, ahead.scales);
}

// Which cache weights are prefetched to. Several rows multiply faster if lines are in L1 when
// their turn comes (8 streams on Zen 5: 12% of a step). For one row, it depends on the size of L1:
// with 48 KB (Zen 5) it is 10% faster, with 32 KB (Zen 4) a quarter slower than L2.
Cache cache_for(std::int64_t m_size) {
  static const bool large_l1 = l1_cache_bytes() >= 48 << 10;
  return m_size > 1 || large_l1 ? Cache::l1 : Cache::l2;
}

// out [m_size, kTiles * 16 of kTileN] = x times the tiles. The tile that is multiplied next begins
// `skipped` bytes after the end of a tile; its first blocks are prefetched too.
template <Format format, bool zeros, Cache to>
void multiply_tiles(const Tile (&tiles)[kTiles], const Ahead& skipped, const ActivationBlock* x,
                    std::int64_t x_stride, std::int64_t m_size, float factor, float* out) {
  constexpr int n_size = kTiles * kWeightTileN;
  for (std::int64_t m = 0; m < m_size; ++m) std::fill_n(out + m * kTileN, n_size, 0.f);
  // The tiles from the current block on: pointers that move along cost fewer registers than
  // indices, and no division.
  Tile rest[kTiles];
  std::copy_n(tiles, kTiles, rest);
  const std::int64_t scale_bytes = scales_of(format) * kWeightTileN * size_of(tiles[0].scale_dtype);
  std::int64_t same_scale = tiles[0].blocks_per_scale;
  constexpr std::int64_t kAhead = blocks_ahead(format);
  Ahead ahead{.codes = kAhead * block_bytes(format),
              .scales = ceil_div(kAhead, same_scale) * scale_bytes};
  const std::int64_t first_behind = std::max<std::int64_t>(0, tiles[0].blocks - kAhead);
  for (std::int64_t block = 0; block < tiles[0].blocks; ++block, x += x_stride) {
    if (block == first_behind) ahead.codes += skipped.codes, ahead.scales += skipped.scales;
    for (const Tile& tile : rest) prefetch_block<format, to>(tile, ahead);
    for (int slice = 0; slice < kSlices; ++slice) {
      const DecodedBlock<format, zeros> decoded(rest, slice);
      float* sums = out + slice * kSliceN;
      std::int64_t m = 0;
      for (; m + kDot8Rows <= m_size; m += kDot8Rows) {
        multiply_add<kDot8Rows>(decoded, x + m, sums + m * kTileN);
      }
      for (; m < m_size; ++m) multiply_add<1>(decoded, x + m, sums + m * kTileN);
    }
    const bool next_scale = --same_scale == 0;
    if (next_scale) same_scale = tiles[0].blocks_per_scale;
    for (Tile& tile : rest) {
      tile.codes += block_bytes(format);
      if (!next_scale) continue;
      tile.scales += scale_bytes;
      if (tile.zeros) tile.zeros += kWeightTileN;
    }
  }
  if (factor == 1.f) return;
  for (std::int64_t m = 0; m < m_size; ++m) {
    for (int n = 0; n < n_size; ++n) out[m * kTileN + n] *= factor;
  }
}

template <Format format, bool zeros>
void multiply_product(const Weight& weight, const PackedInput& x, const ProductTile& product) {
  const std::int64_t last_tile = weight.data.shape[0] - 1;
  constexpr std::int64_t kBetween = kTiles - 1;  // tiles that lie between a tile and its next
  const Ahead skipped{.codes = kBetween * weight.data.strides[0],
                      .scales = kBetween * weight.scales.strides[0] * size_of(weight.scales.dtype)};
  const auto multiply_all = cache_for(product.m_size) == Cache::l1
                                ? multiply_tiles<format, zeros, Cache::l1>
                                : multiply_tiles<format, zeros, Cache::l2>;
  for (std::int64_t n = 0; n < product.n_size; n += kTiles * kWeightTileN) {
    Tile tiles[kTiles];
    for (int t = 0; t < kTiles; ++t) {  // the last tile may be repeated; nobody reads that result
      tiles[t] = tile_of(weight, std::min((product.n0 + n) / kWeightTileN + t, last_tile));
    }
    multiply_all(tiles, skipped, blocks_of(x) + product.m0, x.m_size, product.m_size,
                 value_factor(weight), product.out + n);
  }
}

void multiply(const Weight& weight, const PackedInput& x, const ProductTile& product) {
  if (weight.format == Format::int8 && weight.zeros.defined()) {
    return multiply_product<Format::int8, true>(weight, x, product);
  }
  with_tile_format(weight.format, [&](auto format) HWY_ATTR {
    multiply_product<format(), false>(weight, x, product);
  });
}

std::int64_t input_bytes(std::int64_t m_size, std::int64_t k_size) {
  return checked_mul(checked_mul(ceil_div(k_size, kBlock), m_size), sizeof(ActivationBlock));
}

bool is_wide(Format format) { return range_of(format) == Dot8Range::wide; }

void pack_narrow(const Rows& x, DType dtype, std::int64_t m0, std::int64_t m_size,
                 PackedInput& to) {
  pack(x, dtype, m0, m_size, dot8_offset(Dot8Range::narrow), to);
}
void pack_wide(const Rows& x, DType dtype, std::int64_t m0, std::int64_t m_size, PackedInput& to) {
  pack(x, dtype, m0, m_size, dot8_offset(Dot8Range::wide), to);
}
void pack_for_zeros(const Rows& x, DType dtype, std::int64_t m0, std::int64_t m_size,
                    PackedInput& to) {
  pack(x, dtype, m0, m_size, 1, to);
}

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(input_bytes);
HWY_EXPORT(is_wide);
HWY_EXPORT(pack_narrow);
HWY_EXPORT(pack_wide);
HWY_EXPORT(pack_for_zeros);
HWY_EXPORT(multiply);

const LinearKernel& tiles_int8_kernel(const Weight& weight) {
  // 96 tokens of 4096 activations take 590 KB. They stay in a 1 MB L2 cache while weights stream.
  static constexpr LinearKernel kNarrow{
      .name = "cpu.tiles.int8",
      .max_m = 96,
      .pack_m = 2,  // rounding takes its time, and a step of few streams has few tokens
      .input_bytes =
          [](std::int64_t m_size, std::int64_t k_size) {
            return HWY_DYNAMIC_DISPATCH(input_bytes)(m_size, k_size);
          },
      .pack =
          [](const Rows& x, DType dtype, std::int64_t m0, std::int64_t m_size, PackedInput& to) {
            return HWY_DYNAMIC_DISPATCH(pack_narrow)(x, dtype, m0, m_size, to);
          },
      .scratch_bytes = [](const Weight&) -> std::int64_t { return 0; },
      .multiply = [](const Weight& w, const PackedInput& x, const ProductTile& tile,
                     char*) { return HWY_DYNAMIC_DISPATCH(multiply)(w, x, tile); },
  };
  static constexpr LinearKernel kWide = [] {
    LinearKernel kernel = kNarrow;
    kernel.pack = [](const Rows& x, DType dtype, std::int64_t m0, std::int64_t m_size,
                     PackedInput& to) {
      return HWY_DYNAMIC_DISPATCH(pack_wide)(x, dtype, m0, m_size, to);
    };
    return kernel;
  }();
  static constexpr LinearKernel kZeros = [] {
    LinearKernel kernel = kNarrow;
    kernel.pack = [](const Rows& x, DType dtype, std::int64_t m0, std::int64_t m_size,
                     PackedInput& to) {
      return HWY_DYNAMIC_DISPATCH(pack_for_zeros)(x, dtype, m0, m_size, to);
    };
    return kernel;
  }();
  if (weight.format == Format::int8 && weight.zeros.defined()) return kZeros;
  return HWY_DYNAMIC_DISPATCH(is_wide)(weight.format) ? kWide : kNarrow;
}

}  // namespace tessera::cpu
#endif
