// A row of one float type as a row of another, in vectors of f32.

// Per-target include guard: Highway includes this file once for each SIMD target.
#if defined(TESSERA_CPU_COPY_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_CPU_COPY_ROW_INL_H_
#undef TESSERA_CPU_COPY_ROW_INL_H_
#else
#define TESSERA_CPU_COPY_ROW_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "cpu/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

template <typename From, typename To>
void copy_row(const From* from, To* to, std::size_t n) {
  if constexpr (std::is_same_v<From, To>) {
    std::memcpy(to, from, n * sizeof(To));
  } else {
    const hn::ScalableTag<float> d;
    const std::size_t lanes = hn::Lanes(d);
    for (std::size_t i = 0; i < n; i += lanes) {
      const std::size_t count = std::min(lanes, n - i);
      store_f32_up_to(d, load_f32_up_to(d, from + i, count), to + i, count);
    }
  }
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
