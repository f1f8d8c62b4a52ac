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
#include "cpu/linear/kernels.h"
#include "cpu/linear/pack_rows.h"
#include "cpu/linear/prefetch.h"
#include "quant/codec.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/linear/gemv.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/simd/fp8-inl.h"
#include "cpu/simd/vector-inl.h"

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

template <typename T>
HWY_INLINE void load_run(const T* from, Vector (&to)[kRun<T>]) {
  const Lanes d;
  for (int i = 0; i < kRun<T>; ++i) to[i] = load_f32(d, from + i * hn::Lanes(d));
}

// fp8 comes woven, and meets an x that was packed so.
HWY_INLINE void load_run(const E4M3* from, Vector (&to)[4]) { load_woven(Lanes(), from, to); }

// sums[m][r] += w[r] * x[m] for a run of K. The lines that lie `ahead` bytes on are asked for.
template <int rows, int weights, typename T>
HWY_INLINE void multiply_add(const T* const* w, std::int64_t w_k, std::int64_t ahead,
                             const float* const (&x)[rows], std::int64_t x_k,
                             Vector (&sums)[rows][weights]) {
  const Lanes d;
  for (int r = 0; r < weights; ++r) {
    prefetch_to_l2(w[r] + w_k, ahead);
    Vector run[kRun<T>];
    load_run(w[r] + w_k, run);
    for (int i = 0; i < kRun<T>; ++i) {
      for (int m = 0; m < rows; ++m) {
        const Vector values = hn::LoadU(d, x[m] + x_k + i * hn::Lanes(d));
        sums[m][r] = hn::MulAdd(run[i], values, sums[m][r]);
      }
    }
  }
}

// out[m][r] = w[r] . x[m] for `weights` rows of W and `rows` rows of x.
template <int weights, int rows, typename T>
void dot_rows(const T* const* w, std::int64_t ahead, const float* const (&x)[rows],
              std::int64_t depth, float* out) {
  const Lanes d;
  constexpr std::int64_t run = kRun<T> * hn::MaxLanes(Lanes());
  Vector sums[rows][weights];
  for (auto& row : sums) {
    for (Vector& sum : row) sum = hn::Zero(d);
  }
  std::int64_t k = 0;
  for (; k + run <= depth; k += run) multiply_add(w, k, ahead, x, k, sums);
  if (k < depth) {  // the last run is filled up with zeros, as x is
    T last[weights][run] = {};
    const T* rows_of_last[weights];
    for (int r = 0; r < weights; ++r) {
      rows_of_last[r] = std::copy(w[r] + k, w[r] + depth, last[r]) - (depth - k);
    }
    multiply_add(rows_of_last, 0, 0, x, k, sums);
  }
  for (int m = 0; m < rows; ++m) {
    for (int r = 0; r < weights; ++r) {
      out[m * kTileCols + r] = hn::GetLane(hn::SumOfLanes(d, sums[m][r]));
    }
  }
}

// All rows of x of the tile; the rows of W stay in the cache. Those that come next lie `ahead`
// bytes on.
template <typename T>
void multiply_rows(const T* const* w, std::int64_t ahead, const PackedInput& x,
                   const ProductTile& product, float* out) {
  for (std::int64_t row = 0; row < product.rows; row += kInputRows, out += kInputRows * kTileCols) {
    const float* from[kInputRows];
    for (int m = 0; m < kInputRows; ++m) {
      from[m] = packed_row(x, product.row + std::min(row + m, product.rows - 1));
    }
    if (product.rows - row == 1) {
      const float* const first[] = {from[0]};
      dot_rows<kWeightRows>(w, ahead, first, x.depth, out);
    } else {  // the sums of half as many rows of W are what fits the registers
      constexpr int half = kWeightRows / 2;
      dot_rows<half>(w, ahead, from, x.depth, out);
      dot_rows<half>(w + half, ahead, from, x.depth, out + half);
    }
  }
}

// Row number of weight row r of the group that starts at `col`; rows past the last repeat it.
std::int64_t weight_row(const Weight& weight, const ProductTile& product, std::int64_t col, int r) {
  return std::min(product.col + col + r, weight.out_features - 1);
}

template <typename T>
void multiply_dense(const Weight& weight, const PackedInput& x, const ProductTile& product) {
  const std::int64_t ahead =
      std::min(kWeightRows * weight.data.strides[0] * std::int64_t{sizeof(T)}, kPrefetchRoom);
  for (std::int64_t col = 0; col < product.cols; col += kWeightRows) {
    const T* rows[kWeightRows];
    for (int r = 0; r < kWeightRows; ++r) {
      rows[r] =
          weight.data.ptr<const T>() + weight_row(weight, product, col, r) * weight.data.strides[0];
    }
    multiply_rows(rows, ahead, x, product, product.out + col);
  }
}

void multiply_floats(const Weight& weight, const PackedInput& x, const ProductTile& product) {
  with_float_type(weight.data.dtype,
                  [&](auto type) { multiply_dense<decltype(type)>(weight, x, product); });
}

// ---- fp8 ---------------------------------------------------------------------------------------

// Woven weights are 2^-120 of their values. 2^32 times x lifts the products well above the smallest
// f32, and leaves room for x up to 2^96.
constexpr float kWovenInput = 0x1p32f;

void pack_woven(const Rows& x, DType dtype, std::int64_t row, std::int64_t rows, PackedInput& to) {
  constexpr std::int64_t lanes = hn::MaxLanes(Lanes());
  pack_rows(x, dtype, row, rows, to);
  for (std::int64_t m = row; m < row + rows; ++m) {
    float* values = packed_row(to, m);
    for (std::int64_t k = 0; k < packed_row_stride(to.depth); k += 4 * lanes, values += 4 * lanes) {
      float plain[4 * lanes];
      std::copy_n(values, 4 * lanes, plain);
      for (std::int64_t i = 0; i < 4 * lanes; ++i) {
        values[i % 4 * lanes + i / 4] = kWovenInput * plain[i];
      }
    }
  }
}

void multiply_fp8(const Weight& weight, const PackedInput& x, const ProductTile& product) {
  multiply_dense<E4M3>(weight, x, product);
  for (std::int64_t c = 0; c < product.cols; ++c) {
    const float factor = fp8_scale(weight, product.col + c) / (kWovenInput * kWovenUnit);
    for (std::int64_t m = 0; m < product.rows; ++m) product.out[m * kTileCols + c] *= factor;
  }
}

// ---- published packed weights ------------------------------------------------------------------

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
    multiply_rows(rows, 0, x, product, product.out + col);
  }
}

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {
namespace {

HWY_EXPORT(multiply_floats);
HWY_EXPORT(pack_woven);
HWY_EXPORT(multiply_fp8);
HWY_EXPORT(decoded_bytes);
HWY_EXPORT(multiply_decoded);

constexpr LinearKernel for_floats(const char* name) {
  return {
      .name = name,
      .max_rows = kFewRows,
      .input_bytes = packed_rows_bytes,
      .pack = pack_rows,
      .scratch_bytes = [](const Weight&) -> std::int64_t { return 0; },
      .multiply = [](const Weight& weight, const PackedInput& x, const ProductTile& product,
                     char*) { return HWY_DYNAMIC_DISPATCH(multiply_floats)(weight, x, product); }};
}

constexpr LinearKernel for_fp8() {
  LinearKernel kernel = for_floats("cpu.gemv.fp8");
  kernel.pack = [](const Rows& x, DType dtype, std::int64_t row, std::int64_t rows,
                   PackedInput& to) {
    return HWY_DYNAMIC_DISPATCH(pack_woven)(x, dtype, row, rows, to);
  };
  kernel.multiply = [](const Weight& weight, const PackedInput& x, const ProductTile& product,
                       char*) { return HWY_DYNAMIC_DISPATCH(multiply_fp8)(weight, x, product); };
  return kernel;
}

}  // namespace

const LinearKernel& gemv_kernel(const Weight& weight) {
  static constexpr LinearKernel kF32 = for_floats("cpu.gemv.f32"),
                                kF16 = for_floats("cpu.gemv.f16"),
                                kBF16 = for_floats("cpu.gemv.bf16"), kFp8 = for_fp8();
  if (weight.format == Format::fp8) return kFp8;
  return weight.data.dtype == DType::f32 ? kF32 : weight.data.dtype == DType::f16 ? kF16 : kBF16;
}

const LinearKernel& decode_kernel() {
  static constexpr LinearKernel kDecode{
      .name = "cpu.decode.exact",
      .max_rows = kFewRows,
      .input_bytes = packed_rows_bytes,
      .pack = pack_rows,
      .scratch_bytes =
          [](const Weight& weight) { return HWY_DYNAMIC_DISPATCH(decoded_bytes)(weight); },
      .multiply =
          [](const Weight& weight, const PackedInput& x, const ProductTile& product,
             char* scratch) {
            return HWY_DYNAMIC_DISPATCH(multiply_decoded)(weight, x, product, scratch);
          }};
  return kDecode;
}

}  // namespace tessera::cpu
#endif
