// The f32 product for many tokens. Weights are decoded and transposed, panel by panel, and a
// microkernel keeps a block of the result in registers.
//
//                              panel [kPanelK, kPanelN]     kPanelN: two vectors along N
//                             +-----------+
//                           k |-----------|
//                             |           |
//                             +-----------+
//   tile of x [kPanelK, kMicroM]
//             +-----------+   +-----------+
//             | k:        |   |  kMicroM  |                 the sums fill the registers:
//             |  kMicroM  |   | x kPanelN |                 sum[m][n] += x[k][m] * panel[k][n]
//             |  tokens   |   |           |                 (x[k][m] is broadcast)
//             +-----------+   +-----------+
//
//   for each panel of the tile, along N:
//     for each kPanelK of K: fill the panel;
//       for each kMicroM of M: microkernel
//
// The panel stays in the cache while all tokens pass by. Between two panels along K, the sums are
// kept in the f32 tile.
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

constexpr int kLanes = kSliceN;
constexpr int kPanelN = 2 * kLanes;
// Tokens of a microkernel. Its sums take 2 * kMicroM registers: 24 of 32 with AVX-512, 12 of 16
// elsewhere. Two more hold a row of the panel, and one holds the broadcast.
constexpr int kMicroM = kLanes == 16 ? 12 : 6;
// A short last tile may have a third or two thirds of the tokens, so that little is wasted on
// zeros.
constexpr int kStepM = kMicroM / 3;
static_assert(kPackM % kMicroM == 0 && kTileN % kPanelN == 0);
// Depth of a panel, in whole blocks of weights. With AVX-512 a panel takes 64 KB, which leaves room
// for x in the L2 cache.
constexpr std::int64_t kPanelK = 512;
static_assert(kPanelK % kBlock == 0);

// Tokens of the tile of x that starts at token m, padding included.
int tile_m(std::int64_t m, std::int64_t m_size) {
  const std::int64_t left = std::min<std::int64_t>(kMicroM, m_size - m);
  return static_cast<int>(ceil_div(left, kStepM) * kStepM);
}

// ---- x: tiles of [K][tokens] --------------------------------------------------------------------

// All tiles before this one have kMicroM tokens.
float* input_tile(const PackedInput& x, std::int64_t m) {
  return reinterpret_cast<float*>(x.data) + m * x.k_size;
}

// out[k * stride] = from[k]
template <typename T>
void spread_row(const T* from, std::int64_t k_size, std::int64_t stride, float* out) {
  const F32 d;
  for (std::int64_t k = 0; k < k_size; k += kLanes) {
    HWY_ALIGN float lanes[kLanes];
    const std::int64_t n = std::min<std::int64_t>(kLanes, k_size - k);
    hn::Store(load_f32_up_to(d, from + k, static_cast<std::size_t>(n)), d, lanes);
    for (std::int64_t i = 0; i < n; ++i) out[(k + i) * stride] = lanes[i];
  }
}

void pack(const Rows& x, DType dtype, std::int64_t m0, std::int64_t m_size, PackedInput& to) {
  with_float_type(dtype, [&](auto type) HWY_ATTR {
    for (std::int64_t first = m0; first < m0 + m_size; first += kMicroM) {
      const int tile = tile_m(first, to.m_size);
      float* out = input_tile(to, first);
      for (int m = 0; m < tile; ++m) {
        if (first + m < to.m_size) {
          spread_row(x.row<const decltype(type)>(first + m), to.k_size, tile, out + m);
        } else {  // padding
          for (std::int64_t k = 0; k < to.k_size; ++k) out[k * tile + m] = 0.f;
        }
      }
    }
  });
}

// ---- weights: panels of [kPanelK][kPanelN] -----------------------------------------------------

// kLanes rows of the weight are staged in f32 on their way into a panel. In the weight itself, rows
// are often a multiple of 4 KB apart and would evict each other from the L1 cache. Staged rows are
// not: this is their distance.
constexpr std::int64_t kStagedStride = kPanelK + 16;

#if HWY_TARGET == HWY_SCALAR  // one lane: a copy

void transpose(const float* staged, std::int64_t depth, float* panel) {
  for (std::int64_t k = 0; k < depth; ++k) panel[k * kPanelN] = staged[k];
}

#else

// Four values of each of the rows 0, 4, 8, ...: one row in each 128-bit block.
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

// panel[k][n] = staged[n][k] for kLanes features n. Each 128-bit block is transposed on its own, as
// a 4x4 matrix. Up to three extra values of k are read and written; there is room for them.
void transpose(const float* staged, std::int64_t depth, float* panel) {
  const F32 d;
  const hn::Repartition<double, F32> d64;
  for (std::int64_t k = 0; k < depth; k += 4, panel += 4 * kPanelN) {
    const auto a = load_every_fourth_row(d, staged + k);
    const auto b = load_every_fourth_row(d, staged + kStagedStride + k);
    const auto c = load_every_fourth_row(d, staged + 2 * kStagedStride + k);
    const auto e = load_every_fourth_row(d, staged + 3 * kStagedStride + k);
    const auto ab_low = hn::BitCast(d64, hn::InterleaveLower(d, a, b));   // a0 b0 a1 b1
    const auto ce_low = hn::BitCast(d64, hn::InterleaveLower(d, c, e));   // c0 e0 c1 e1
    const auto ab_high = hn::BitCast(d64, hn::InterleaveUpper(d, a, b));  // a2 b2 a3 b3
    const auto ce_high = hn::BitCast(d64, hn::InterleaveUpper(d, c, e));
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, ab_low, ce_low)), d, panel);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, ab_low, ce_low)), d, panel + kPanelN);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, ab_high, ce_high)), d, panel + 2 * kPanelN);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, ab_high, ce_high)), d, panel + 3 * kPanelN);
  }
}

#endif

// Stages [k, k + depth) of these rows of a dense or fp8 weight. The rows are read side by side,
// because the hardware prefetchers handle several streams better than one row after the other.
template <typename T>
void stage_rows(const Weight& weight, const std::int64_t (&rows)[kLanes], std::int64_t k,
                std::int64_t depth, float* staged) {
  const F32 d;
  const T* from[kLanes];
  for (int n = 0; n < kLanes; ++n) {
    from[n] = weight.data.ptr<const T>() + rows[n] * weight.data.strides[0] + k;
  }
  constexpr std::int64_t run = kLanes * sizeof(float) / sizeof(T);  // a cache line with AVX-512
  std::int64_t i = 0;
  for (; i + run <= depth; i += run) {
    for (int n = 0; n < kLanes; ++n) {
      float* to = staged + n * kStagedStride + i;
      for (int j = 0; j < run; j += kLanes) hn::StoreU(load_f32(d, from[n] + i + j), d, to + j);
    }
  }
  for (int n = 0; n < kLanes; ++n) {
    convert_row_to_f32(d, from[n] + i, staged + n * kStagedStride + i,
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
    for (int n = 0; n < kLanes; ++n) {
      quant::decode_row(weight, rows[n], k, k + depth, staged + n * kStagedStride);
    }
  }
}

void fill_from_rows(const Weight& weight, std::int64_t n0, std::int64_t k, std::int64_t depth,
                    float* staged, float* panel) {
  for (int half = 0; half < kPanelN; half += kLanes) {
    // Past the last feature, the last one is repeated; nobody reads the result.
    std::int64_t rows[kLanes];
    for (int n = 0; n < kLanes; ++n) rows[n] = std::min(n0 + half + n, weight.out_features - 1);
    stage(weight, rows, k, depth, staged);
    transpose(staged, depth, panel + half);
  }
}

template <Format format>
void fill_from_tiles(const Weight& weight, std::int64_t n0, std::int64_t k, std::int64_t depth,
                     float* panel) {
  for (int half = 0; half < kPanelN; half += kLanes) {
    const std::int64_t first = n0 + half, last_tile = weight.data.shape[0] - 1;
    const Tile tile = tile_of(weight, std::min(first / kWeightTileN, last_tile));
    const int slice = static_cast<int>(first % kWeightTileN) / kLanes;
    for (std::int64_t i = 0; i < depth; i += kBlock) {
      decode_block_f32<format>(tile, (k + i) / kBlock, slice, panel + i * kPanelN + half, kPanelN);
    }
  }
}

// Fills a panel with the features [n0, n0 + kPanelN) and the depths [k, k + depth).
void fill_panel(const Weight& weight, std::int64_t n0, std::int64_t k, std::int64_t depth,
                float* staged, float* panel) {
  if (weight.layout == WeightLayout::cpu_tiles) {
    with_tile_format(weight.format, [&](auto format) HWY_ATTR {
      fill_from_tiles<format()>(weight, n0, k, depth, panel);
    });
  } else {
    fill_from_rows(weight, n0, k, depth, staged, panel);
  }
}

// ---- the product -------------------------------------------------------------------------------

// out [m_size, kPanelN of kTileN] (+)= x tile [depth, m_size]^T * panel [depth, kPanelN]
template <int m_size>
void microkernel(const float* x, const float* panel, std::int64_t depth, bool first, float* out) {
  const F32 d;
  VF32 sums[m_size][2];
  for (int m = 0; m < m_size; ++m) {
    sums[m][0] = first ? hn::Zero(d) : hn::LoadU(d, out + m * kTileN);
    sums[m][1] = first ? hn::Zero(d) : hn::LoadU(d, out + m * kTileN + kLanes);
  }
  for (std::int64_t k = 0; k < depth; ++k, x += m_size, panel += kPanelN) {
    const auto w0 = hn::LoadU(d, panel), w1 = hn::LoadU(d, panel + kLanes);
    for (int m = 0; m < m_size; ++m) {
      const auto value = hn::Set(d, x[m]);
      sums[m][0] = hn::MulAdd(value, w0, sums[m][0]);
      sums[m][1] = hn::MulAdd(value, w1, sums[m][1]);
    }
  }
  for (int m = 0; m < m_size; ++m) {
    hn::StoreU(sums[m][0], d, out + m * kTileN);
    hn::StoreU(sums[m][1], d, out + m * kTileN + kLanes);
  }
}

void multiply_tile(const float* x, int m_size, const float* panel, std::int64_t depth, bool first,
                   float* out) {
  switch (m_size / kStepM) {
    case 3:
      return microkernel<3 * kStepM>(x, panel, depth, first, out);
    case 2:
      return microkernel<2 * kStepM>(x, panel, depth, first, out);
    default:
      return microkernel<kStepM>(x, panel, depth, first, out);
  }
}

// Multiplies with the factors that panels leave out: one for the whole weight, or the scale of each
// feature of an fp8 weight.
void scale_features(const Weight& weight, const ProductTile& product) {
  float factors[kTileN];
  for (std::int64_t n = 0; n < product.n_size; ++n) {
    factors[n] = weight.format == Format::fp8 ? fp8_scale(weight, product.n0 + n) / kE4M3Unit
                                              : f32_factor(weight);
  }
  for (std::int64_t m = 0; m < product.m_size; ++m) {
    for (std::int64_t n = 0; n < product.n_size; ++n) product.out[m * kTileN + n] *= factors[n];
  }
}

void multiply(const Weight& weight, const PackedInput& x, const ProductTile& product,
              char* scratch) {
  float* panel = reinterpret_cast<float*>(scratch);
  float* staged = panel + kPanelK * kPanelN;
  for (std::int64_t n = 0; n < product.n_size; n += kPanelN) {
    // With K = 0, one empty panel still writes the zeros.
    for (std::int64_t k = 0; k == 0 || k < x.k_size; k += kPanelK) {
      const std::int64_t depth = std::min(kPanelK, x.k_size - k);
      fill_panel(weight, product.n0 + n, k, depth, staged, panel);
      for (std::int64_t m = 0; m < product.m_size; m += kMicroM) {
        const int m_size = tile_m(product.m0 + m, x.m_size);
        multiply_tile(input_tile(x, product.m0 + m) + k * m_size, m_size, panel, depth, k == 0,
                      product.out + m * kTileN + n);
      }
    }
  }
  if (weight.layout == WeightLayout::cpu_tiles || weight.format == Format::fp8) {
    scale_features(weight, product);
  }
}

std::int64_t input_bytes(std::int64_t m_size, std::int64_t k_size) {
  return checked_mul(checked_mul(checked_align(m_size, kMicroM), k_size), sizeof(float));
}

std::int64_t scratch_bytes() {
  return (kPanelK * kPanelN + kStagedStride * kLanes) * sizeof(float);
}

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

// With 384 tokens, filling a panel is one percent of the work, and the tile of sums (98 KB) stays
// in the L2 cache.
constexpr LinearKernel named(const char* name) {
  return {
      .name = name,
      .max_m = 384,
      .input_bytes =
          [](std::int64_t m_size, std::int64_t k_size) {
            return HWY_DYNAMIC_DISPATCH(input_bytes)(m_size, k_size);
          },
      .pack = [](const Rows& x, DType dtype, std::int64_t m0, std::int64_t m_size,
                 PackedInput& to) { return HWY_DYNAMIC_DISPATCH(pack)(x, dtype, m0, m_size, to); },
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
