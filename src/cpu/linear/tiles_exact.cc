// Tiled weights times f32 activations, for few tokens. Weights are decoded to f32 in registers and
// multiplied at once.
//
//   codes of a block --> w [16 features], at depth k --> sums[m] += w * x[m][k] (broadcast)
//   out[m] += sums[m] * scale                            for each k of the block, and each m
//
// With more tokens, gemm_f32.cc is faster; it uses the same decoder.
#include <algorithm>
#include <type_traits>

#include "cpu/linear/kernels.h"
#include "cpu/linear/pack_rows.h"
#include "cpu/linear/weight_tiles.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/linear/tiles_exact.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/linear/tile_codec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

// Tokens of one pass over a weight tile; for two or three, the last is repeated.
constexpr int kGroupM = 4;

// sums[m] = sum over the half block of weight * x[m][k], before scaling.
template <Format format, int m_size>
HWY_INLINE void dot_half(const VI32* steps, VF32 zeros, const float* const (&x)[m_size],
                         std::int64_t k, VF32 (&sums)[m_size]) {
  const F32 d;
  for (VF32& sum : sums) sum = hn::Zero(d);
  for (int s = 0; s < kSteps / 2; ++s, k += 4) {
    const VF32 w[4] = {
        byte_to_f32<format, 0>(steps[s], zeros), byte_to_f32<format, 1>(steps[s], zeros),
        byte_to_f32<format, 2>(steps[s], zeros), byte_to_f32<format, 3>(steps[s], zeros)};
    for (int m = 0; m < m_size; ++m) {
      for (int j = 0; j < 4; ++j) sums[m] = hn::MulAdd(w[j], hn::Set(d, x[m][k + j]), sums[m]);
    }
  }
}

// out [m_size, 16 of kTileN] = x times one tile of the weight.
template <Format format, int m_size>
void multiply_tile(const Tile& tile, const float* const (&x)[m_size], float factor, float* out) {
  const F32 d;
  for (int slice = 0; slice < kSlices; ++slice, out += kSliceN) {
    VF32 totals[m_size];
    for (VF32& total : totals) total = hn::Zero(d);
    for (std::int64_t block = 0; block < tile.blocks; ++block) {
      VI32 steps[kSteps];
      load_f32_codes<format>(tile, block, slice, steps);
      VF32 scales[2];
      load_block_scales<format>(tile, block, slice, scales);
      const VF32 zeros = load_f32_zeros<format>(tile, block, slice);
      for (int half = 0; half < 2; ++half) {
        VF32 sums[m_size];
        dot_half<format>(steps + half * kSteps / 2, zeros, x, block * kBlock + half * kBlock / 2,
                         sums);
        for (int m = 0; m < m_size; ++m) {
          totals[m] = hn::MulAdd(before_scale<format>(sums[m]), scales[half], totals[m]);
        }
      }
    }
    for (int m = 0; m < m_size; ++m) {
      hn::StoreU(hn::Mul(totals[m], hn::Set(d, factor)), d, out + m * kTileN);
    }
  }
}

template <int m_size>
void multiply_rows(const Weight& weight, const PackedInput& x, const ProductTile& product,
                   std::int64_t m0) {
  const float* from[m_size];
  for (int m = 0; m < m_size; ++m) {
    from[m] = packed_row(x, product.m0 + std::min(m0 + m, product.m_size - 1));
  }
  with_tile_format(weight.format, [&](auto format) HWY_ATTR {
    for (std::int64_t n = 0; n < product.n_size; n += kWeightTileN) {
      multiply_tile<format()>(tile_of(weight, (product.n0 + n) / kWeightTileN), from,
                              f32_factor(weight), product.out + m0 * kTileN + n);
    }
  });
}

void multiply(const Weight& weight, const PackedInput& x, const ProductTile& product) {
  for (std::int64_t m0 = 0; m0 < product.m_size; m0 += kGroupM) {
    if (product.m_size - m0 == 1) {
      multiply_rows<1>(weight, x, product, m0);
    } else {
      multiply_rows<kGroupM>(weight, x, product, m0);
    }
  }
}

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(multiply);

const LinearKernel& tiles_exact_kernel() {
  static constexpr LinearKernel kKernel{
      .name = "cpu.tiles.exact",
      .max_m = kFewM,
      .input_bytes = packed_rows_bytes,
      .pack = pack_rows,
      .scratch_bytes = [](const Weight&) -> std::int64_t { return 0; },
      .multiply = [](const Weight& weight, const PackedInput& x, const ProductTile& product,
                     char*) { return HWY_DYNAMIC_DISPATCH(multiply)(weight, x, product); }};
  return kKernel;
}

}  // namespace tessera::cpu
#endif
