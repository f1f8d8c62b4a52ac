// The f32 product for few tokens. Each row of the weight is read once, straight from memory.
//
//                    K ->
//   W  feature n    |--------|--------|--------|  ...     eight features at a time: the hardware
//      feature n+1  |--------|--------|--------|          prefetchers follow eight streams better
//         ...                                             than one, and x is loaded once for all
//      feature n+7  |--------|--------|--------|
//   x  token m      |--------|--------|--------|          up to four tokens, in the L1 cache
//                       sums[m][n] += W[n] * x[m]         one vector each, summed up at the end
//
// f16, bf16 and fp8 weights are widened in registers. Packed weights in the published layout are
// decoded to f32 in scratch memory, eight features at a time; prepare() gives them a layout that
// avoids this.
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

constexpr int kGroupN = 8;  // features at a time
constexpr int kGroupM = 4;  // tokens at a time; if there are two or three, the last is repeated

using Lanes = hn::ScalableTag<float>;
using Vector = hn::Vec<Lanes>;

// Vectors of a row of W that are read in one go: as many bytes as one vector of f32, a cache line
// with AVX-512. Rows are often a multiple of 4 KB apart; then the lines of eight rows evict each
// other from the L1 cache before they are read a second time.
template <typename T>
constexpr int kRun = static_cast<int>(sizeof(float) / sizeof(T));

template <typename T>
HWY_INLINE void load_run(const T* from, Vector (&to)[kRun<T>]) {
  const Lanes d;
  for (int i = 0; i < kRun<T>; ++i) to[i] = load_f32(d, from + i * hn::Lanes(d));
}

// fp8 weights come interleaved (load_woven), and pack_woven() has packed x in the same order.
HWY_INLINE void load_run(const E4M3* from, Vector (&to)[4]) { load_woven(Lanes(), from, to); }

// sums[m][n] += w[n] * x[m] for a run of K. Prefetches the cache lines `ahead` bytes on.
template <int m_size, int n_size, typename T>
HWY_INLINE void multiply_add(const T* const* w, std::int64_t w_k, std::int64_t ahead,
                             const float* const (&x)[m_size], std::int64_t x_k,
                             Vector (&sums)[m_size][n_size]) {
  const Lanes d;
  for (int n = 0; n < n_size; ++n) {
    prefetch<Cache::l2>(w[n] + w_k, ahead);
    Vector run[kRun<T>];
    load_run(w[n] + w_k, run);
    for (int i = 0; i < kRun<T>; ++i) {
      for (int m = 0; m < m_size; ++m) {
        const Vector values = hn::LoadU(d, x[m] + x_k + i * hn::Lanes(d));
        sums[m][n] = hn::MulAdd(run[i], values, sums[m][n]);
      }
    }
  }
}

// out[m][n] = w[n] . x[m] for n_size features and m_size tokens.
template <int n_size, int m_size, typename T>
void dot_rows(const T* const* w, std::int64_t ahead, const float* const (&x)[m_size],
              std::int64_t k_size, float* out) {
  const Lanes d;
  constexpr std::int64_t run = kRun<T> * hn::MaxLanes(Lanes());
  Vector sums[m_size][n_size];
  for (auto& of_token : sums) {
    for (Vector& sum : of_token) sum = hn::Zero(d);
  }
  std::int64_t k = 0;
  for (; k + run <= k_size; k += run) multiply_add(w, k, ahead, x, k, sums);
  if (k < k_size) {  // the last run is filled up with zeros, as x is
    T last[n_size][run] = {};
    const T* rows_of_last[n_size];
    for (int n = 0; n < n_size; ++n) {
      rows_of_last[n] = std::copy(w[n] + k, w[n] + k_size, last[n]) - (k_size - k);
    }
    multiply_add(rows_of_last, 0, 0, x, k, sums);
  }
  for (int m = 0; m < m_size; ++m) {
    for (int n = 0; n < n_size; ++n) {
      out[m * kTileN + n] = hn::GetLane(hn::SumOfLanes(d, sums[m][n]));
    }
  }
}

// Multiplies a group of features with all tokens of the tile, while the rows of W stay in the
// cache. The next group is `ahead` bytes on.
template <typename T>
void multiply_rows(const T* const* w, std::int64_t ahead, const PackedInput& x,
                   const ProductTile& product, float* out) {
  for (std::int64_t m0 = 0; m0 < product.m_size; m0 += kGroupM, out += kGroupM * kTileN) {
    const float* from[kGroupM];
    for (int m = 0; m < kGroupM; ++m) {
      from[m] = packed_row(x, product.m0 + std::min(m0 + m, product.m_size - 1));
    }
    if (product.m_size - m0 == 1) {
      const float* const first[] = {from[0]};
      dot_rows<kGroupN>(w, ahead, first, x.k_size, out);
    } else {  // the registers have room for the sums of half as many features
      constexpr int half = kGroupN / 2;
      dot_rows<half>(w, ahead, from, x.k_size, out);
      dot_rows<half>(w + half, ahead, from, x.k_size, out + half);
    }
  }
}

// Row of W for feature n of the group that starts at n0 in the tile. Past the last feature, the
// last one is repeated.
std::int64_t weight_row(const Weight& weight, const ProductTile& product, std::int64_t n0, int n) {
  return std::min(product.n0 + n0 + n, weight.out_features - 1);
}

template <typename T>
void multiply_dense(const Weight& weight, const PackedInput& x, const ProductTile& product) {
  const std::int64_t ahead =
      std::min(kGroupN * weight.data.strides[0] * std::int64_t{sizeof(T)}, kPrefetchRoom);
  for (std::int64_t n0 = 0; n0 < product.n_size; n0 += kGroupN) {
    const T* rows[kGroupN];
    for (int n = 0; n < kGroupN; ++n) {
      rows[n] =
          weight.data.ptr<const T>() + weight_row(weight, product, n0, n) * weight.data.strides[0];
    }
    multiply_rows(rows, ahead, x, product, product.out + n0);
  }
}

void multiply_floats(const Weight& weight, const PackedInput& x, const ProductTile& product) {
  with_float_type(weight.data.dtype,
                  [&](auto type) { multiply_dense<decltype(type)>(weight, x, product); });
}

// ---- fp8 ---------------------------------------------------------------------------------------

// load_woven() returns weights times 2^-120. Multiplying x by 2^32 lifts the products well above
// the smallest f32, and leaves room for x up to 2^96.
constexpr float kWovenInput = 0x1p32f;

void pack_woven(const Rows& x, DType dtype, std::int64_t m0, std::int64_t m_size, PackedInput& to) {
  constexpr std::int64_t lanes = hn::MaxLanes(Lanes());
  pack_rows(x, dtype, m0, m_size, to);
  for (std::int64_t m = m0; m < m0 + m_size; ++m) {
    float* values = packed_row(to, m);
    for (std::int64_t k = 0; k < packed_row_stride(to.k_size);
         k += 4 * lanes, values += 4 * lanes) {
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
  for (std::int64_t n = 0; n < product.n_size; ++n) {
    const float factor = fp8_scale(weight, product.n0 + n) / (kWovenInput * kWovenUnit);
    for (std::int64_t m = 0; m < product.m_size; ++m) product.out[m * kTileN + n] *= factor;
  }
}

// ---- published packed weights ------------------------------------------------------------------

std::int64_t decoded_bytes(const Weight& weight) {
  return packed_rows_bytes(kGroupN, weight.in_features);
}

void multiply_decoded(const Weight& weight, const PackedInput& x, const ProductTile& product,
                      char* scratch) {
  float* decoded = reinterpret_cast<float*>(scratch);
  for (std::int64_t n0 = 0; n0 < product.n_size; n0 += kGroupN) {
    const float* rows[kGroupN];
    for (int n = 0; n < kGroupN; ++n) {
      float* row = decoded + n * packed_row_stride(x.k_size);
      quant::decode_row(weight, weight_row(weight, product, n0, n), 0, x.k_size, row);
      rows[n] = row;
    }
    multiply_rows(rows, 0, x, product, product.out + n0);
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
      .max_m = kFewM,
      .input_bytes = packed_rows_bytes,
      .pack = pack_rows,
      .scratch_bytes = [](const Weight&) -> std::int64_t { return 0; },
      .multiply = [](const Weight& weight, const PackedInput& x, const ProductTile& product,
                     char*) { return HWY_DYNAMIC_DISPATCH(multiply_floats)(weight, x, product); }};
}

constexpr LinearKernel for_fp8() {
  LinearKernel kernel = for_floats("cpu.gemv.fp8");
  kernel.pack = [](const Rows& x, DType dtype, std::int64_t m0, std::int64_t m_size,
                   PackedInput& to) {
    return HWY_DYNAMIC_DISPATCH(pack_woven)(x, dtype, m0, m_size, to);
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
      .max_m = kFewM,
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
