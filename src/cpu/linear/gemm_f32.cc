// The f32 product for many rows: weights are decoded and transposed, panel by panel, and a
// microkernel keeps a block of the result in registers.
//
//                        panel [kDepth, kCols]            kCols = two vectors of columns
//                       +----------+                      kRows x kCols: what fits the registers
//                     k |----------|  two vectors
//                       |          |
//                       +----------+
//   x tile [kDepth, kRows]
//       +------------+  +----------+
//       |  k: kRows  |  | kRows x  |  sum[r][c] += x[k][r] (broadcast) * panel[k][c]
//       |  numbers   |  | kCols    |
//       +------------+  +----------+
//
//   for each panel of the tile:
//     for each kDepth of K: fill the panel;
//       for each kRows of x: microkernel
//
// The panel stays in the cache while all rows of x pass by; sums wait in the f32 tile between two
// stretches of K.
#include <algorithm>
#include <type_traits>

#include "core/checked.h"
#include "core/type_switch.h"
#include "cpu/linear/kernels.h"
#include "cpu/linear/weight_tiles.h"
#include "quant/codec.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/linear/gemm_f32.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/linear/tile_codec-inl.h"
#include "cpu/simd/fp8-inl.h"
#include "cpu/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

constexpr int kLanes = kSliceRows;
constexpr int kCols = 2 * kLanes;  // of a panel
// Sums take kRows * 2 registers: 24 of 32 with AVX-512, 12 of 16 elsewhere; two hold the panel's
// row and one the broadcast.
constexpr int kRows = kLanes == 16 ? 12 : 6;
// Short last tiles have a third or two thirds of the rows: little is wasted on zeros.
constexpr int kRowStep = kRows / 3;
static_assert(kPackRows % kRows == 0 && kTileCols % kCols == 0);
// K is taken in stretches of this, whole blocks of weights: a panel of 64 KB with AVX-512 leaves
// room for x in the L2 cache.
constexpr std::int64_t kDepth = 512;
static_assert(kDepth % kBlock == 0);

// Rows of the tile of x that starts at `row`.
int tile_rows(std::int64_t row, std::int64_t rows) {
  const std::int64_t left = std::min<std::int64_t>(kRows, rows - row);
  return static_cast<int>(ceil_div(left, kRowStep) * kRowStep);
}

// ---- x: tiles of [K][tile rows] ----------------------------------------------------------------

// All tiles before this one have kRows rows.
float* input_tile(const PackedInput& x, std::int64_t row) {
  return reinterpret_cast<float*>(x.data) + row * x.depth;
}

// out[k * stride] = from[k]
template <typename T>
void spread_row(const T* from, std::int64_t depth, std::int64_t stride, float* out) {
  const F32 d;
  for (std::int64_t k = 0; k < depth; k += kLanes) {
    HWY_ALIGN float lanes[kLanes];
    const std::int64_t n = std::min<std::int64_t>(kLanes, depth - k);
    hn::Store(load_f32_up_to(d, from + k, static_cast<std::size_t>(n)), d, lanes);
    for (std::int64_t i = 0; i < n; ++i) out[(k + i) * stride] = lanes[i];
  }
}

void pack(const Rows& x, DType dtype, std::int64_t row, std::int64_t rows, PackedInput& to) {
  with_float_type(dtype, [&](auto type) HWY_ATTR {
    for (std::int64_t first = row; first < row + rows; first += kRows) {
      const int tile = tile_rows(first, to.rows);
      float* out = input_tile(to, first);
      for (int r = 0; r < tile; ++r) {
        if (first + r < to.rows) {
          spread_row(x.row<const decltype(type)>(first + r), to.depth, tile, out + r);
        } else {  // fills the tile up
          for (std::int64_t k = 0; k < to.depth; ++k) out[k * tile + r] = 0.f;
        }
      }
    }
  });
}

// ---- weights: panels of [kDepth][kCols] --------------------------------------------------------

// kLanes rows of the weight in f32, on their way into a panel. In the weight itself they are often
// a multiple of 4 KB apart, where they would evict each other from the L1 cache; here they are not.
constexpr std::int64_t kStagedStride = kDepth + 16;

#if HWY_TARGET == HWY_SCALAR  // one lane: a copy

void transpose(const float* staged, std::int64_t depth, float* panel) {
  for (std::int64_t k = 0; k < depth; ++k) panel[k * kCols] = staged[k];
}

#else

// Four values of rows 0, 4, 8, ...: one row to each 128-bit block.
template <class D>
HWY_INLINE hn::Vec<D> load_every_fourth_row(D d, const float* staged) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return hn::LoadU(d, staged);
  } else {
    const hn::Half<D> half;
    const float* upper = staged + hn::MaxLanes(half) * kStagedStride;
    return hn::Combine(d, load_every_fourth_row(half, upper), load_every_fourth_row(half, staged));
  }
}

// panel[k][c] = staged[c][k] for kLanes columns c. Each 128-bit block is a 4x4 transposition of its
// own. Up to three values of k too many are read and written: there is room for them.
void transpose(const float* staged, std::int64_t depth, float* panel) {
  const F32 d;
  const hn::Repartition<double, F32> d64;
  for (std::int64_t k = 0; k < depth; k += 4, panel += 4 * kCols) {
    const auto a = load_every_fourth_row(d, staged + k);
    const auto b = load_every_fourth_row(d, staged + kStagedStride + k);
    const auto c = load_every_fourth_row(d, staged + 2 * kStagedStride + k);
    const auto e = load_every_fourth_row(d, staged + 3 * kStagedStride + k);
    const auto ab_low = hn::BitCast(d64, hn::InterleaveLower(d, a, b));   // a0 b0 a1 b1
    const auto ce_low = hn::BitCast(d64, hn::InterleaveLower(d, c, e));   // c0 e0 c1 e1
    const auto ab_high = hn::BitCast(d64, hn::InterleaveUpper(d, a, b));  // a2 b2 a3 b3
    const auto ce_high = hn::BitCast(d64, hn::InterleaveUpper(d, c, e));
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, ab_low, ce_low)), d, panel);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, ab_low, ce_low)), d, panel + kCols);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, ab_high, ce_high)), d, panel + 2 * kCols);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, ab_high, ce_high)), d, panel + 3 * kCols);
  }
}

#endif

// Columns [k, k + depth) of the rows of a dense or fp8 weight. Side by side, because the memory's
// prefetchers follow several rows better than one after the other.
template <typename T>
void stage_rows(const Weight& weight, const std::int64_t (&rows)[kLanes], std::int64_t k,
                std::int64_t depth, float* staged) {
  const F32 d;
  const T* from[kLanes];
  for (int c = 0; c < kLanes; ++c) {
    from[c] = weight.data.ptr<const T>() + rows[c] * weight.data.strides[0] + k;
  }
  constexpr std::int64_t run = kLanes * sizeof(float) / sizeof(T);  // a cache line with AVX-512
  std::int64_t i = 0;
  for (; i + run <= depth; i += run) {
    for (int c = 0; c < kLanes; ++c) {
      float* to = staged + c * kStagedStride + i;
      for (int j = 0; j < run; j += kLanes) hn::StoreU(load_f32(d, from[c] + i + j), d, to + j);
    }
  }
  for (int c = 0; c < kLanes; ++c) {
    convert_row_to_f32(d, from[c] + i, staged + c * kStagedStride + i,
                       static_cast<std::size_t>(depth - i));
  }
}

// The same for any weight that is not in tiles.
void stage(const Weight& weight, const std::int64_t (&rows)[kLanes], std::int64_t k,
           std::int64_t depth, float* staged) {
  if (weight.format == Format::fp8) {
    stage_rows<E4M3>(weight, rows, k, depth, staged);
  } else if (weight.format == Format::dense) {
    with_float_type(weight.data.dtype, [&](auto type) HWY_ATTR {
      stage_rows<decltype(type)>(weight, rows, k, depth, staged);
    });
  } else {
    for (int c = 0; c < kLanes; ++c) {
      quant::decode_row(weight, rows[c], k, k + depth, staged + c * kStagedStride);
    }
  }
}

void fill_from_rows(const Weight& weight, std::int64_t col, std::int64_t k, std::int64_t depth,
                    float* staged, float* panel) {
  for (int half = 0; half < kCols; half += kLanes) {
    // Past the last row, it is repeated: nobody reads the result.
    std::int64_t rows[kLanes];
    for (int c = 0; c < kLanes; ++c) rows[c] = std::min(col + half + c, weight.out_features - 1);
    stage(weight, rows, k, depth, staged);
    transpose(staged, depth, panel + half);
  }
}

template <Format format>
void fill_from_tiles(const Weight& weight, std::int64_t col, std::int64_t k, std::int64_t depth,
                     float* panel) {
  for (int half = 0; half < kCols; half += kLanes) {
    const std::int64_t first = col + half, last_tile = weight.data.shape[0] - 1;
    const Tile tile = tile_of(weight, std::min(first / kTileRows, last_tile));
    const int slice = static_cast<int>(first % kTileRows) / kLanes;
    for (std::int64_t i = 0; i < depth; i += kBlock) {
      decode_block_f32<format>(tile, (k + i) / kBlock, slice, panel + i * kCols + half, kCols);
    }
  }
}

// Rows [col, col + kCols) and columns [k, k + depth) of the weight.
void fill_panel(const Weight& weight, std::int64_t col, std::int64_t k, std::int64_t depth,
                float* staged, float* panel) {
  if (weight.layout == WeightLayout::cpu_tiles) {
    with_tile_format(weight.format, [&](auto format) HWY_ATTR {
      fill_from_tiles<format()>(weight, col, k, depth, panel);
    });
  } else {
    fill_from_rows(weight, col, k, depth, staged, panel);
  }
}

// ---- the product -------------------------------------------------------------------------------

// out [rows, kCols of kTileCols] (+)= x tile [depth, rows] ^T * panel [depth, kCols]
template <int rows>
void microkernel(const float* x, const float* panel, std::int64_t depth, bool first, float* out) {
  const F32 d;
  VF32 sums[rows][2];
  for (int r = 0; r < rows; ++r) {
    sums[r][0] = first ? hn::Zero(d) : hn::LoadU(d, out + r * kTileCols);
    sums[r][1] = first ? hn::Zero(d) : hn::LoadU(d, out + r * kTileCols + kLanes);
  }
  for (std::int64_t k = 0; k < depth; ++k, x += rows, panel += kCols) {
    const auto w0 = hn::LoadU(d, panel), w1 = hn::LoadU(d, panel + kLanes);
    for (int r = 0; r < rows; ++r) {
      const auto value = hn::Set(d, x[r]);
      sums[r][0] = hn::MulAdd(value, w0, sums[r][0]);
      sums[r][1] = hn::MulAdd(value, w1, sums[r][1]);
    }
  }
  for (int r = 0; r < rows; ++r) {
    hn::StoreU(sums[r][0], d, out + r * kTileCols);
    hn::StoreU(sums[r][1], d, out + r * kTileCols + kLanes);
  }
}

void multiply_tile(const float* x, int rows, const float* panel, std::int64_t depth, bool first,
                   float* out) {
  switch (rows / kRowStep) {
    case 3:
      return microkernel<3 * kRowStep>(x, panel, depth, first, out);
    case 2:
      return microkernel<2 * kRowStep>(x, panel, depth, first, out);
    default:
      return microkernel<kRowStep>(x, panel, depth, first, out);
  }
}

// What the panels leave out: a factor for the whole weight, or fp8's scale for each row of it.
void scale_columns(const Weight& weight, const ProductTile& product) {
  float factors[kTileCols];
  for (std::int64_t c = 0; c < product.cols; ++c) {
    factors[c] = weight.format == Format::fp8 ? fp8_scale(weight, product.col + c) / kE4M3Unit
                                              : f32_factor(weight);
  }
  for (std::int64_t m = 0; m < product.rows; ++m) {
    for (std::int64_t c = 0; c < product.cols; ++c) product.out[m * kTileCols + c] *= factors[c];
  }
}

void multiply(const Weight& weight, const PackedInput& x, const ProductTile& product,
              char* scratch) {
  float* panel = reinterpret_cast<float*>(scratch);
  float* staged = panel + kDepth * kCols;
  for (std::int64_t col = 0; col < product.cols; col += kCols) {
    // With nothing to sum over, one empty stretch still writes the zeros.
    for (std::int64_t k = 0; k == 0 || k < x.depth; k += kDepth) {
      const std::int64_t depth = std::min(kDepth, x.depth - k);
      fill_panel(weight, product.col + col, k, depth, staged, panel);
      for (std::int64_t m = 0; m < product.rows; m += kRows) {
        const int rows = tile_rows(product.row + m, x.rows);
        multiply_tile(input_tile(x, product.row + m) + k * rows, rows, panel, depth, k == 0,
                      product.out + m * kTileCols + col);
      }
    }
  }
  if (weight.layout == WeightLayout::cpu_tiles || weight.format == Format::fp8) {
    scale_columns(weight, product);
  }
}

std::int64_t input_bytes(std::int64_t rows, std::int64_t depth) {
  return checked_mul(checked_mul(checked_align(rows, kRows), depth), sizeof(float));
}

std::int64_t scratch_bytes() { return (kDepth * kCols + kStagedStride * kLanes) * sizeof(float); }

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {
namespace {

HWY_EXPORT(input_bytes);
HWY_EXPORT(pack);
HWY_EXPORT(scratch_bytes);
HWY_EXPORT(multiply);

// 384 rows: filling a panel is then one percent of the work, and the tile of sums, 98 KB, stays in
// the L2 cache.
constexpr LinearKernel named(const char* name) {
  return {
      .name = name,
      .max_rows = 384,
      .input_bytes =
          [](std::int64_t rows, std::int64_t depth) {
            return HWY_DYNAMIC_DISPATCH(input_bytes)(rows, depth);
          },
      .pack = [](const Rows& x, DType dtype, std::int64_t row, std::int64_t rows,
                 PackedInput& to) { return HWY_DYNAMIC_DISPATCH(pack)(x, dtype, row, rows, to); },
      .scratch_bytes = [](const Weight&) { return HWY_DYNAMIC_DISPATCH(scratch_bytes)(); },
      .multiply =
          [](const Weight& weight, const PackedInput& x, const ProductTile& tile, char* scratch) {
            return HWY_DYNAMIC_DISPATCH(multiply)(weight, x, tile, scratch);
          }};
}

}  // namespace

const LinearKernel& gemm_kernel(const Weight& weight) {
  static constexpr LinearKernel kF32 = named("cpu.gemm.f32"), kF16 = named("cpu.gemm.f16"),
                                kBF16 = named("cpu.gemm.bf16"), kFp8 = named("cpu.gemm.fp8"),
                                kTiles = named("cpu.tiles.exact"),
                                kDecode = named("cpu.decode.exact");
  if (weight.layout == WeightLayout::cpu_tiles) return kTiles;
  if (weight.format == Format::fp8) return kFp8;
  if (weight.format != Format::dense) return kDecode;
  return weight.data.dtype == DType::f32 ? kF32 : weight.data.dtype == DType::f16 ? kF16 : kBF16;
}

}  // namespace tessera::cpu
#endif
