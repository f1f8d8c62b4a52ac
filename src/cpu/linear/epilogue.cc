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

// values = act(values + bias), in whole vectors; the tile has room for them.
template <Activation activation>
void activate_row(float* values, const float* bias, std::size_t n) {
  const Lanes d;
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    const auto sum = hn::Add(hn::LoadU(d, values + i), hn::LoadU(d, bias + i));
    hn::StoreU(activate<activation>(d, sum), d, values + i);
  }
}

void activate_row(Activation activation, float* values, const float* bias, std::size_t n) {
  switch (activation) {
    case Activation::none:
      return activate_row<Activation::none>(values, bias, n);
    case Activation::relu:
      return activate_row<Activation::relu>(values, bias, n);
    case Activation::gelu:
      return activate_row<Activation::gelu>(values, bias, n);
    case Activation::gelu_tanh:
      return activate_row<Activation::gelu_tanh>(values, bias, n);
    case Activation::silu:
      return activate_row<Activation::silu>(values, bias, n);
  }
}

// out = values * (up + up_bias) + residual; up and residual may be null.
template <typename T>
void store_row(const float* values, const float* up, const float* up_bias, const T* residual,
               std::size_t n, T* out) {
  const Lanes d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t i = 0; i < n; i += lanes) {
    const std::size_t count = std::min(lanes, n - i);
    auto v = hn::LoadU(d, values + i);
    if (up) v = hn::Mul(v, hn::Add(hn::LoadU(d, up + i), hn::LoadU(d, up_bias + i)));
    if (residual) v = hn::Add(v, load_f32_up_to(d, residual + i, count));
    store_f32_up_to(d, v, out + i, count);
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
      float* values = product.out + m * kTileN;
      activate_row(epilogue.activation, values, bias, n_size);
      const T* residual =
          epilogue.has_residual ? epilogue.residual.row<T>(product.m0 + m) + product.n0 : nullptr;
      store_row(values, up ? up + m * kTileN : nullptr, up_bias, residual, n_size,
                epilogue.out.row<T>(product.m0 + m) + product.n0);
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
