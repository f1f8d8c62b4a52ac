// f32, f16 and bf16 in vectors, against the scalar conversions of core/half.h, on every target.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/half.h"
#include "support/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/simd/vector_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

using F32 = hn::ScalableTag<float>;

template <typename T>
void load_all(const T* from, float* to, std::size_t n) {
  const F32 d;
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    hn::StoreU(load_f32_up_to(d, from + i, std::min(hn::Lanes(d), n - i)), d, to + i);
  }
}

template <typename T>
void store_all(const float* from, T* to, std::size_t n) {
  const F32 d;
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    store_f32_up_to(d, hn::LoadU(d, from + i), to + i, std::min(hn::Lanes(d), n - i));
  }
}

template <typename T>
void round_all(const float* from, float* to, std::size_t n) {
  const F32 d;
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    hn::StoreU(rounded_to<T>(d, hn::LoadU(d, from + i)), d, to + i);
  }
}

void load_f16(const Half* from, float* to, std::size_t n) { load_all(from, to, n); }
void load_bf16(const BFloat16* from, float* to, std::size_t n) { load_all(from, to, n); }
void store_f16(const float* from, Half* to, std::size_t n) { store_all(from, to, n); }
void store_bf16(const float* from, BFloat16* to, std::size_t n) { store_all(from, to, n); }
void round_f16(const float* from, float* to, std::size_t n) { round_all<Half>(from, to, n); }
void round_bf16(const float* from, float* to, std::size_t n) { round_all<BFloat16>(from, to, n); }

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {
namespace {

HWY_EXPORT(load_f16);
HWY_EXPORT(load_bf16);
HWY_EXPORT(store_f16);
HWY_EXPORT(store_bf16);
HWY_EXPORT(round_f16);
HWY_EXPORT(round_bf16);

constexpr std::size_t kVector = 64;  // room for one vector too many

// Equal bit for bit, except that any NaN equals any other: hardware and half.h keep different
// payloads.
bool same(float a, float b) {
  return std::isnan(a) ? std::isnan(b)
                       : std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

template <typename T, typename Load>
void check_loads(Load&& load) {
  std::vector<T> all(1 << 16);
  for (std::uint32_t bits = 0; bits < all.size(); ++bits) {
    all[bits].bits = static_cast<std::uint16_t>(bits);
  }
  std::vector<float> loaded(all.size() + kVector);
  for (std::size_t n : {all.size(), all.size() - 1}) {  // whole vectors, and a shorter last one
    load(all.data(), loaded.data(), n);
    int wrong = 0;
    for (std::size_t i = 0; i < n; ++i) wrong += !same(loaded[i], to_float(all[i]));
    EXPECT_EQ(wrong, 0);
  }
}

constexpr std::size_t kFloats = (1u << 16) * 10 + 1;  // an odd count

// Every f32 with a few chosen low halves: ties, their neighbours, and a random one.
std::vector<float> many_floats() {
  std::vector<float> floats;
  for (std::uint32_t high = 0; high < 1u << 16; ++high) {
    for (std::uint32_t low : {0u, 1u, 0x0fffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu,
                              (high * 2654435761u) >> 16}) {
      floats.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  floats.resize(kFloats + kVector, 1.f);
  return floats;
}

template <typename T, typename Store, typename Round>
void check_stores(Store&& store, Round&& round) {
  const std::vector<float> floats = many_floats();
  std::vector<T> stored(kFloats);
  std::vector<float> rounded(kFloats + kVector);
  store(floats.data(), stored.data(), kFloats);
  round(floats.data(), rounded.data(), kFloats);
  int wrong = 0;
  for (std::size_t i = 0; i < kFloats; ++i) {
    const float expected = to_float(from_float<T>(floats[i]));
    wrong += !same(to_float(stored[i]), expected) + !same(rounded[i], expected);
  }
  EXPECT_EQ(wrong, 0);
}

TEST(Vector, ConvertsLikeHalfH) {
  test::on_every_simd_target([&] {
    check_loads<Half>(HWY_DYNAMIC_DISPATCH(load_f16));
    check_loads<BFloat16>(HWY_DYNAMIC_DISPATCH(load_bf16));
    check_stores<Half>(HWY_DYNAMIC_DISPATCH(store_f16), HWY_DYNAMIC_DISPATCH(round_f16));
    check_stores<BFloat16>(HWY_DYNAMIC_DISPATCH(store_bf16), HWY_DYNAMIC_DISPATCH(round_bf16));
  });
}

}  // namespace
}  // namespace tessera::cpu
#endif
