// The f32 product for few rows of x: each row of the weight is read once, straight from memory.
//
//   W    row n     |--------|--------|--------|  ...      eight rows of W at a time: the memory's
//        row n+1   |--------|--------|--------|           prefetchers follow eight streams better
//           ...                                           than one, and x is loaded once for all
//        row n+7   |--------|--------|--------|
//   x    row m     |--------|--------|--------|           up to four rows of x, in the L1 cache
//                      sums[m][n] += W[n] * x[m]          one vector each, added up in the end
//
// f16, bf16 and fp8 weights widen in registers. Packed weights in the published layout are decoded
// to f32 eight rows at a time, into scratch memory; prepare() gives them a layout that needs no
// such detour.
#include <algorithm>

#include "core/type_switch.h"
#include "cpu/linear_kernels.h"
#include "cpu/pack_rows.h"
#include "quant/codec.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/gemv.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/fp8-inl.h"
#include "cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

constexpr int kWeightRows = 8;  // of W at a time
constexpr int kInputRows = 4;   // of x at a time; for two or three, the last is repeated

using Lanes = hn::ScalableTag<float>;
using Vector = hn::Vec<Lanes>;

// Vectors of a row of W that are read in one go: as much memory as one vector of f32, a cache line
// with AVX-512. Rows are often a multiple of 4 KB apart, where the lines of eight rows evict each
// other from the L1 cache before they are read a second time.
template <typename T>
constexpr int kRun = static_cast<int>(sizeof(float) / sizeof(T));

// sums[m][r] += w[r] * x[m] for `run` vectors of K.
template <int run, int rows, int weights, typename T>
HWY_INLINE void multiply_add(const T* const* w, const float* const (&x)[rows], std::int64_t k,
                             Vector (&sums)[rows][weights]) {
  const Lanes d;
  constexpr int lanes = hn::MaxLanes(d);
  for (int r = 0; r < weights; ++r) {
    for (int i = 0; i < run; ++i) {
      const Vector weight = load_f32(d, w[r] + k + i * lanes);
      for (int m = 0; m < rows; ++m) {
        sums[m][r] = hn::MulAdd(weight, hn::LoadU(d, x[m] + k + i * lanes), sums[m][r]);
      }
    }
  }
}

// The same for the last n values of K, less than a vector.
template <int rows, int weights, typename T>
HWY_INLINE void multiply_add_n(const T* const* w, const float* const (&x)[rows], std::int64_t k,
                               std::size_t n, Vector (&sums)[rows][weights]) {
  const Lanes d;
  for (int r = 0; r < weights; ++r) {
    const Vector weight = load_f32_n(d, w[r] + k, n);
    for (int m = 0; m < rows; ++m) {
      sums[m][r] = hn::MulAdd(weight, hn::LoadU(d, x[m] + k), sums[m][r]);
    }
  }
}

// out[m][r] = w[r] . x[m] for `weights` rows of W and `rows` rows of x.
template <int weights, int rows, typename T>
void dot_rows(const T* const* w, const float* const (&x)[rows], std::int64_t depth, float* out) {
  const Lanes d;
  const std::int64_t lanes = hn::Lanes(d);
  Vector sums[rows][weights];
  for (auto& row : sums) {
    for (Vector& sum : row) sum = hn::Zero(d);
  }
  std::int64_t k = 0;
  for (; k + kRun<T> * lanes <= depth; k += kRun<T> * lanes) multiply_add<kRun<T>>(w, x, k, sums);
  for (; k + lanes <= depth; k += lanes) multiply_add<1>(w, x, k, sums);
  if (k < depth) multiply_add_n(w, x, k, static_cast<std::size_t>(depth - k), sums);
  for (int m = 0; m < rows; ++m) {
    for (int r = 0; r < weights; ++r) {
      out[m * kTileCols + r] = hn::GetLane(hn::SumOfLanes(d, sums[m][r]));
    }
  }
}

// All rows of x of the tile; the rows of W stay in the cache.
template <typename T>
void multiply_rows(const T* const* w, const PackedInput& x, const ProductTile& product,
                   float* out) {
  for (std::int64_t row = 0; row < product.rows; row += kInputRows, out += kInputRows * kTileCols) {
    const float* from[kInputRows];
    for (int m = 0; m < kInputRows; ++m) {
      from[m] = packed_row(x, product.row + std::min(row + m, product.rows - 1));
    }
    if (product.rows - row == 1) {
      const float* const first[] = {from[0]};
      dot_rows<kWeightRows>(w, first, x.depth, out);
    } else {  // the sums of half as many rows of W are what fits the registers
      constexpr int half = kWeightRows / 2;
      dot_rows<half>(w, from, x.depth, out);
      dot_rows<half>(w + half, from, x.depth, out + half);
    }
  }
}

// Row number of weight row r of the group that starts at `col`; rows past the last repeat it.
std::int64_t weight_row(const Weight& weight, const ProductTile& product, std::int64_t col, int r) {
  return std::min(product.col + col + r, weight.out_features - 1);
}

template <typename T>
void multiply_dense(const Weight& weight, const PackedInput& x, const ProductTile& product) {
  for (std::int64_t col = 0; col < product.cols; col += kWeightRows) {
    const T* rows[kWeightRows];
    for (int r = 0; r < kWeightRows; ++r) {
      rows[r] =
          weight.data.ptr<const T>() + weight_row(weight, product, col, r) * weight.data.strides[0];
    }
    multiply_rows(rows, x, product, product.out + col);
  }
}

void multiply_any(const Weight& weight, const PackedInput& x, const ProductTile& product) {
  if (weight.format != Format::fp8) {
    with_float_type(weight.data.dtype,
                    [&](auto type) { multiply_dense<decltype(type)>(weight, x, product); });
    return;
  }
  multiply_dense<E4M3>(weight, x, product);
  for (std::int64_t c = 0; c < product.cols; ++c) {
    const float factor = fp8_factor(weight, product.col + c);
    for (std::int64_t m = 0; m < product.rows; ++m) product.out[m * kTileCols + c] *= factor;
  }
}

std::int64_t decoded_bytes(const Weight& weight) {
  return packed_rows_bytes(kWeightRows, weight.in_features);
}

void multiply_decoded(const Weight& weight, const PackedInput& x, const ProductTile& product,
                      char* scratch) {
  float* decoded = reinterpret_cast<float*>(scratch);
  for (std::int64_t col = 0; col < product.cols; col += kWeightRows) {
    const float* rows[kWeightRows];
    for (int r = 0; r < kWeightRows; ++r) {
      float* row = decoded + r * packed_row_stride(x.depth);
      quant::decode_row(weight, weight_row(weight, product, col, r), 0, x.depth, row);
      rows[r] = row;
    }
    multiply_rows(rows, x, product, product.out + col);
  }
}

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {
namespace {

HWY_EXPORT(multiply_any);
HWY_EXPORT(decoded_bytes);
HWY_EXPORT(multiply_decoded);

constexpr LinearKernel streaming(const char* name) {
  return {.name = name,
          .max_rows = 3 * kPackRows,
          .input_bytes = packed_rows_bytes,
          .pack = pack_rows,
          .scratch_bytes = [](const Weight&) -> std::int64_t { return 0; },
          .multiply =
              [](const Weight& weight, const PackedInput& x, const ProductTile& product, char*) {
                HWY_DYNAMIC_DISPATCH(multiply_any)
                (weight, x, product);
              }};
}

}  // namespace

const LinearKernel& gemv_kernel(const Weight& weight) {
  static constexpr LinearKernel kF32 = streaming("cpu.gemv.f32"), kF16 = streaming("cpu.gemv.f16"),
                                kBF16 = streaming("cpu.gemv.bf16"),
                                kFp8 = streaming("cpu.gemv.fp8");
  if (weight.format == Format::fp8) return kFp8;
  return weight.data.dtype == DType::f32 ? kF32 : weight.data.dtype == DType::f16 ? kF16 : kBF16;
}

const LinearKernel& decode_kernel() {
  static constexpr LinearKernel kDecode{
      .name = "cpu.decode.exact",
      .max_rows = 3 * kPackRows,
      .input_bytes = packed_rows_bytes,
      .pack = pack_rows,
      .scratch_bytes =
          [](const Weight& weight) { return HWY_DYNAMIC_DISPATCH(decoded_bytes)(weight); },
      .multiply =
          [](const Weight& weight, const PackedInput& x, const ProductTile& product,
             char* scratch) {
            HWY_DYNAMIC_DISPATCH(multiply_decoded)(weight, x, product, scratch);
          }};
  return kDecode;
}

}  // namespace tessera::cpu
#endif
