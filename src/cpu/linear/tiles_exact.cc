// Tiled weights times f32 activations, for few rows of x: weights turn into f32 in registers and
// are multiplied at once.
//
//   codes of a block --> w [16 rows], weight k of each --> sums[m] += w * x[m][k] (broadcast)
//   out[m] += sums[m] * scale                              for each k of the block, and each m
//
// With more rows, src/cpu/gemm_f32.cc does better on the same decoder.
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

// Rows of x that one pass over a tile serves; for two or three, the last is repeated.
constexpr int kRows = 4;

// sums[m] = sum over the half block of weight * x[m][k], not scaled yet.
template <Format format, int rows>
HWY_INLINE void dot_half(const VI32* steps, VF32 zeros, const float* const (&x)[rows],
                         std::int64_t k, VF32 (&sums)[rows]) {
  const F32 d;
  for (VF32& sum : sums) sum = hn::Zero(d);
  for (int s = 0; s < kSteps / 2; ++s, k += 4) {
    const VF32 w[4] = {
        byte_to_f32<format, 0>(steps[s], zeros), byte_to_f32<format, 1>(steps[s], zeros),
        byte_to_f32<format, 2>(steps[s], zeros), byte_to_f32<format, 3>(steps[s], zeros)};
    for (int m = 0; m < rows; ++m) {
      for (int j = 0; j < 4; ++j) sums[m] = hn::MulAdd(w[j], hn::Set(d, x[m][k + j]), sums[m]);
    }
  }
}

// out [rows, 16 of kTileCols] = x times one tile of the weight.
template <Format format, int rows>
void multiply_tile(const Tile& tile, const float* const (&x)[rows], float factor, float* out) {
  const F32 d;
  for (int slice = 0; slice < kSlices; ++slice, out += kSliceRows) {
    VF32 totals[rows];
    for (VF32& total : totals) total = hn::Zero(d);
    for (std::int64_t block = 0; block < tile.blocks; ++block) {
      VI32 steps[kSteps];
      load_f32_codes<format>(tile, block, slice, steps);
      VF32 scales[2];
      load_block_scales<format>(tile, block, slice, scales);
      const VF32 zeros = load_f32_zeros<format>(tile, block, slice);
      for (int half = 0; half < 2; ++half) {
        VF32 sums[rows];
        dot_half<format>(steps + half * kSteps / 2, zeros, x, block * kBlock + half * kBlock / 2,
                         sums);
        for (int m = 0; m < rows; ++m) {
          totals[m] = hn::MulAdd(before_scale<format>(sums[m]), scales[half], totals[m]);
        }
      }
    }
    for (int m = 0; m < rows; ++m) {
      hn::StoreU(hn::Mul(totals[m], hn::Set(d, factor)), d, out + m * kTileCols);
    }
  }
}

template <int rows>
void multiply_rows(const Weight& weight, const PackedInput& x, const ProductTile& product,
                   std::int64_t row) {
  const float* from[rows];
  for (int m = 0; m < rows; ++m) {
    from[m] = packed_row(x, product.row + std::min(row + m, product.rows - 1));
  }
  with_tile_format(weight.format, [&](auto format) HWY_ATTR {
    for (std::int64_t col = 0; col < product.cols; col += kTileRows) {
      multiply_tile<format()>(tile_of(weight, (product.col + col) / kTileRows), from,
                              f32_factor(weight), product.out + row * kTileCols + col);
    }
  });
}

void multiply(const Weight& weight, const PackedInput& x, const ProductTile& product) {
  for (std::int64_t row = 0; row < product.rows; row += kRows) {
    if (product.rows - row == 1) {
      multiply_rows<1>(weight, x, product, row);
    } else {
      multiply_rows<kRows>(weight, x, product, row);
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
      .max_rows = kFewRows,
      .input_bytes = packed_rows_bytes,
      .pack = pack_rows,
      .scratch_bytes = [](const Weight&) -> std::int64_t { return 0; },
      .multiply = [](const Weight& weight, const PackedInput& x, const ProductTile& product,
                     char*) { return HWY_DYNAMIC_DISPATCH(multiply)(weight, x, product); }};
  return kKernel;
}

}  // namespace tessera::cpu
#endif
