// E4M3 in vectors, all 256 codes, on every target.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "quant/e4m3.h"
#include "support/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/fp8_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/fp8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

using Lanes = hn::ScalableTag<float>;

void decode_all(const std::uint8_t* codes, float* any, float* finite) {
  const Lanes d;
  for (std::size_t i = 0; i < 256; i += hn::Lanes(d)) {
    hn::StoreU(e4m3_to_f32(d, codes + i), d, any + i);
    hn::StoreU(finite_e4m3_to_f32(d, codes + i), d, finite + i);
  }
}

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {
namespace {

HWY_EXPORT(decode_all);

TEST(Fp8Vectors, EveryCode) {
  std::vector<std::uint8_t> codes;
  for (int code = 0; code < 256; ++code) codes.push_back(static_cast<std::uint8_t>(code));
  for (std::int64_t target : test::simd_targets()) {
    SCOPED_TRACE(test::simd_target_name(target));
    const test::ForceSimdTarget force(target);
    std::vector<float> any(256), finite(256);
    HWY_DYNAMIC_DISPATCH(decode_all)(codes.data(), any.data(), finite.data());
    for (std::uint8_t code : codes) {
      const float expected = e4m3_decode(code);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(any[code])) << int{code};
      } else {  // bit for bit: zero has a sign
        EXPECT_EQ(std::bit_cast<std::uint32_t>(any[code] * 0x1p8f),
                  std::bit_cast<std::uint32_t>(expected))
            << int{code};
        EXPECT_EQ(std::bit_cast<std::uint32_t>(finite[code] * 0x1p8f),
                  std::bit_cast<std::uint32_t>(expected))
            << int{code};
      }
    }
  }
}

}  // namespace
}  // namespace tessera::cpu
#endif
