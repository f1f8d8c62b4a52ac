// The 8-bit dot product against plain integers, for every pair of bytes, on every target.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "support/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/simd/dot8_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/simd/dot8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

using I32 = hn::CappedTag<std::int32_t, 16>;
constexpr int kSteps = 8;
constexpr int kVectors = 2, kRows = 2;
constexpr int kLanes = hn::MaxLanes(I32());

// sums[row][v][lane] for w[v][step][lane][4] and x[row][step][4].
template <Dot8Range range>
void dots(const std::int8_t* w, const std::int8_t* x, std::int32_t* sums) {
  constexpr int offset = dot8_offset(range);
  HWY_ALIGN std::uint8_t bytes[kVectors][kSteps][kLanes][4];
  for (int i = 0; i < kVectors * kSteps * kLanes * 4; ++i) {
    (&bytes[0][0][0][0])[i] = static_cast<std::uint8_t>(w[i] + offset);
  }
  const I32 d;
  hn::Vec<I32> weights[kVectors][kSteps], results[kRows][kVectors];
  const hn::Vec<I32>* vectors[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    for (int s = 0; s < kSteps; ++s) {
      weights[v][s] = hn::Load(d, reinterpret_cast<const std::int32_t*>(bytes[v][s]));
    }
    vectors[v] = weights[v];
  }
  const std::int8_t* rows[kRows];
  for (int r = 0; r < kRows; ++r) {
    rows[r] = x + r * 4 * kSteps;
    std::int32_t start = 0;
    for (int k = 0; k < 4 * kSteps; ++k) start -= offset * rows[r][k];
    for (int v = 0; v < kVectors; ++v) results[r][v] = hn::Set(d, start + v);  // goes on from this
  }
  dot8<range, kSteps>(d, vectors, rows, results);
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v, sums += kLanes) hn::StoreU(results[r][v], d, sums);
  }
}

void dots_narrow(const std::int8_t* w, const std::int8_t* x, std::int32_t* sums) {
  dots<Dot8Range::narrow>(w, x, sums);
}
void dots_wide(const std::int8_t* w, const std::int8_t* x, std::int32_t* sums) {
  dots<Dot8Range::wide>(w, x, sums);
}
int lanes() { return kLanes; }

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {
namespace {

HWY_EXPORT(dots_narrow);
HWY_EXPORT(dots_wide);
HWY_EXPORT(lanes);

constexpr int kSteps = 8, kVectors = 2, kRows = 2;

using Bytes = std::vector<std::int8_t>;

std::vector<std::int32_t> expected_dots(const Bytes& w, const Bytes& x, int n_lanes) {
  std::vector<std::int32_t> sums;
  sums.reserve(static_cast<std::size_t>(kRows * kVectors * n_lanes));
  for (int row = 0; row < kRows; ++row) {
    for (int v = 0; v < kVectors; ++v) {
      for (int lane = 0; lane < n_lanes; ++lane) {
        std::int32_t sum = v;
        for (int k = 0; k < 4 * kSteps; ++k) {
          const int weight = w[((v * kSteps + k / 4) * n_lanes + lane) * 4 + k % 4];
          sum += weight * x[row * 4 * kSteps + k];
        }
        sums.push_back(sum);
      }
    }
  }
  return sums;
}

// weight(i) for each byte of the weights and activation(k) for each of x.
template <typename W, typename X>
void check(bool narrow, W&& weight, X&& activation) {
  const int n_lanes = HWY_DYNAMIC_DISPATCH(lanes)();
  Bytes w(static_cast<std::size_t>(kVectors * kSteps * n_lanes * 4)), x(kRows * 4 * kSteps);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<std::int8_t>(weight(i));
  for (std::size_t k = 0; k < x.size(); ++k) x[k] = static_cast<std::int8_t>(activation(k));
  std::vector<std::int32_t> sums(static_cast<std::size_t>(kRows * kVectors * n_lanes));
  if (narrow) {
    HWY_DYNAMIC_DISPATCH(dots_narrow)(w.data(), x.data(), sums.data());
  } else {
    HWY_DYNAMIC_DISPATCH(dots_wide)(w.data(), x.data(), sums.data());
  }
  ASSERT_EQ(sums, expected_dots(w, x, n_lanes));
}

// Every weight meets every activation, at every position.
TEST(Dot8, EveryPairOfNarrowWeightAndActivation) {
  test::on_every_simd_target([] {
    for (std::size_t a = 0; a < 31; ++a) {
      for (std::size_t b = 0; b < 255; ++b) {
        check(
            true, [a](std::size_t i) { return static_cast<int>((i + a) % 31) - 15; },
            [b](std::size_t k) { return static_cast<int>((k + b) % 255) - 127; });
      }
    }
  });
}

TEST(Dot8, EveryPairOfWideWeightAndActivation) {
  test::on_every_simd_target([] {
    for (std::size_t a = 0; a < 256; ++a) {
      for (std::size_t b = 0; b < 255; ++b) {
        check(
            false, [a](std::size_t i) { return static_cast<int>((i + a) % 256) - 128; },
            [b](std::size_t k) { return static_cast<int>((k + b) % 255) - 127; });
      }
    }
  });
}

// The largest sums: nothing may saturate on the way.
TEST(Dot8, ExtremesDoNotSaturate) {
  test::on_every_simd_target([] {
    for (int x : {-127, 127}) {
      for (int w : {-15, 15}) {
        check(
            true, [w](std::size_t) { return w; }, [x](std::size_t) { return x; });
      }
      for (int w : {-128, -127, 127}) {
        check(
            false, [w](std::size_t) { return w; }, [x](std::size_t) { return x; });
      }
    }
  });
}

}  // namespace
}  // namespace tessera::cpu
#endif
