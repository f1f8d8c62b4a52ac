#include "cpu/linear/epilogue.h"

#include <algorithm>

#include "core/type_switch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/linear/epilogue.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/simd/activation-inl.h"
#include "cpu/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

using Lanes = hn::ScalableTag<float>;

// One row of a tile, in whole vectors; the tile has room for them. up and residual may be null.
template <typename T>
struct EpilogueRow {
  const float *values, *bias;
  const float *up, *up_bias;
  const T* residual;
  T* out;
};

// out = act(values + bias) * (up + up_bias) + residual
template <Activation activation, typename T>
void epilogue_of_row(const EpilogueRow<T>& row, std::size_t n) {
  const Lanes d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t i = 0; i < n; i += lanes) {
    const std::size_t count = std::min(lanes, n - i);
    const auto sum = hn::Add(hn::LoadU(d, row.values + i), hn::LoadU(d, row.bias + i));
    auto v = activate<activation>(d, sum);
    if (row.up) v = hn::Mul(v, hn::Add(hn::LoadU(d, row.up + i), hn::LoadU(d, row.up_bias + i)));
    if (row.residual) v = hn::Add(v, load_f32_up_to(d, row.residual + i, count));
    store_f32_up_to(d, v, row.out + i, count);
  }
}

template <typename T>
void epilogue_of_row(Activation activation, const EpilogueRow<T>& row, std::size_t n) {
  switch (activation) {
    case Activation::none:
      return epilogue_of_row<Activation::none>(row, n);
    case Activation::relu:
      return epilogue_of_row<Activation::relu>(row, n);
    case Activation::gelu:
      return epilogue_of_row<Activation::gelu>(row, n);
    case Activation::gelu_tanh:
      return epilogue_of_row<Activation::gelu_tanh>(row, n);
    case Activation::silu:
      return epilogue_of_row<Activation::silu>(row, n);
  }
}

// Loads the part of a bias that belongs to the tile. Without a bias, `to` is left alone.
void load_bias(const Tensor& bias, const ProductTile& product, float* to) {
  if (!bias.defined()) return;
  with_float_type(bias.dtype, [&](auto type) HWY_ATTR {
    convert_row_to_f32(Lanes(), bias.ptr<const decltype(type)>() + product.n0, to,
                       static_cast<std::size_t>(product.n_size));
  });
}

void apply(const Epilogue& epilogue, const ProductTile& product, const float* up) {
  const std::size_t n_size = static_cast<std::size_t>(product.n_size);
  HWY_ALIGN float bias[kTileN] = {}, up_bias[kTileN] = {};
  load_bias(epilogue.bias, product, bias);
  load_bias(epilogue.up_bias, product, up_bias);
  with_float_type(epilogue.dtype, [&](auto type) HWY_ATTR {
    using T = decltype(type);
    for (std::int64_t m = 0; m < product.m_size; ++m) {
      const EpilogueRow<T> row{
          .values = product.out + m * kTileN,
          .bias = bias,
          .up = up ? up + m * kTileN : nullptr,
          .up_bias = up_bias,
          .residual = epilogue.has_residual ? epilogue.residual.row<T>(product.m0 + m) + product.n0
                                            : nullptr,
          .out = epilogue.out.row<T>(product.m0 + m) + product.n0};
      epilogue_of_row(epilogue.activation, row, n_size);
    }
  });
}

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(apply);

void apply_epilogue(const Epilogue& epilogue, const ProductTile& product, const float* up) {
  HWY_DYNAMIC_DISPATCH(apply)(epilogue, product, up);
}

}  // namespace tessera::cpu
#endif
