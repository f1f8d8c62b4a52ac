// E4M3 in vectors, all 256 codes, on every target.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "quant/e4m3.h"
#include "support/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/simd/fp8_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/simd/fp8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

using Lanes = hn::ScalableTag<float>;

// The values of all 256 codes as each function decodes them, in units of 1.
void decode_all(const std::uint8_t* codes, float* any, float* finite, float* woven) {
  const Lanes d;
  constexpr std::size_t lanes = hn::MaxLanes(Lanes());
  for (std::size_t i = 0; i < 256; i += lanes) {
    hn::StoreU(e4m3_to_f32(d, codes + i), d, any + i);
    hn::StoreU(finite_e4m3_to_f32(d, codes + i), d, finite + i);
  }
  for (std::size_t begin = 0; begin < 256; begin += 4 * lanes) {
    hn::Vec<Lanes> run[4];
    float values[lanes];
    load_woven(d, reinterpret_cast<const E4M3*>(codes + begin), run);
    for (std::size_t j = 0; j < 4; ++j) {
      hn::StoreU(run[j], d, values);
      for (std::size_t i = 0; i < lanes; ++i) woven[begin + 4 * i + j] = values[i] / kWovenUnit;
    }
  }
  for (std::size_t i = 0; i < 256; ++i) {
    any[i] /= kE4M3Unit;
    finite[i] /= kE4M3Unit;
  }
}

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {
namespace {

HWY_EXPORT(decode_all);

// Equal bit for bit: zero has a sign.
bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

TEST(Fp8Vectors, EveryCode) {
  std::vector<std::uint8_t> codes;
  for (int code = 0; code < 256; ++code) codes.push_back(static_cast<std::uint8_t>(code));
  test::on_every_simd_target([&] {
    std::vector<float> any(256), finite(256), woven(256);
    HWY_DYNAMIC_DISPATCH(decode_all)(codes.data(), any.data(), finite.data(), woven.data());
    for (std::uint8_t code : codes) {
      const float expected = e4m3_decode(code);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(any[code]) && std::isnan(woven[code])) << int{code};
      } else {
        EXPECT_TRUE(same(any[code], expected)) << int{code};
        EXPECT_TRUE(same(finite[code], expected)) << int{code};
        EXPECT_TRUE(same(woven[code], expected)) << int{code};
      }
    }
  });
}

}  // namespace
}  // namespace tessera::cpu
#endif
