// What a kernel takes for granted, for a compiler of plain C++: CUDA's keywords, thread indices and
// intrinsics. Every .cu file of the emulated build includes it first, and no other file does.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "emulated/simt.h"

// Blocks run one after the other: what is static is shared.
#undef __shared__
#define __shared__ static
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __noinline__
#define __noinline__
#undef __align__
#define __align__(n) alignas(n)

#define threadIdx (::tessera::emulated::current_thread.thread)
#define blockIdx (::tessera::emulated::current_thread.block)
#define blockDim (::tessera::emulated::current_thread.block_size)
#define gridDim (::tessera::emulated::current_thread.grid_size)

using std::isfinite;
using std::isinf;
using std::isnan;
using std::max;
using std::min;

// ---- arithmetic ---------------------------------------------------------------------------------

inline float __fmul_rn(float a, float b) { return a * b; }
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }
inline float rsqrtf(float x) { return 1.f / std::sqrt(x); }
inline void sincospif(float x, float* sine, float* cosine) {
  const double angle = 3.14159265358979323846 * x;
  *sine = static_cast<float>(std::sin(angle)), *cosine = static_cast<float>(std::cos(angle));
}
inline std::uint32_t __float_as_uint(float x) { return std::bit_cast<std::uint32_t>(x); }
inline float __uint_as_float(std::uint32_t x) { return std::bit_cast<float>(x); }

inline std::uint32_t __byte_perm(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
  const std::uint64_t bytes = std::uint64_t{high} << 32 | low;
  std::uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned choice = selector >> (4 * i) & 7u;  // no kernel asks for a byte's sign
    result |= static_cast<std::uint32_t>(bytes >> (8 * choice) & 255u) << (8 * i);
  }
  return result;
}

// The sum of two products is exact in f64, so it is rounded once.
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  const auto fma = [](__half x, __half y, __half z) {
    return __double2half(static_cast<double>(__half2float(x)) * __half2float(y) + __half2float(z));
  };
  return __halves2half2(fma(__low2half(a), __low2half(b), __low2half(c)),
                        fma(__high2half(a), __high2half(b), __high2half(c)));
}

inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
  const auto fma = [](__nv_bfloat16 x, __nv_bfloat16 y, __nv_bfloat16 z) {
    return __double2bfloat16(static_cast<double>(__bfloat162float(x)) * __bfloat162float(y) +
                             __bfloat162float(z));
  };
  return __halves2bfloat162(fma(__low2bfloat16(a), __low2bfloat16(b), __low2bfloat16(c)),
                            fma(__high2bfloat16(a), __high2bfloat16(b), __high2bfloat16(c)));
}

// Loads and stores with a cache hint.
template <typename T>
T __ldcs(const T* from) {
  return *from;
}
template <typename T>
T __ldcg(const T* from) {
  return *from;
}
template <typename T>
void __stcg(T* to, const T& value) {
  *to = value;
}

template <typename T>
T atomicAdd(T* at, T value) {
  const T old = *at;
  *at = old + value;
  return old;
}
template <typename T>
T atomicMin(T* at, T value) {
  const T old = *at;
  *at = std::min(old, value);
  return old;
}
template <typename T>
T atomicMax(T* at, T value) {
  const T old = *at;
  *at = std::max(old, value);
  return old;
}

// Ends all GPU work of a process. Here the process ends.
[[noreturn]] inline void __trap() {
  std::fflush(nullptr);
  std::abort();
}

// ---- barriers -----------------------------------------------------------------------------------

inline void __syncthreads() {
  tessera::emulated::block_together(nullptr, [](tessera::emulated::Payloads, int) {});
}

inline int __syncthreads_or(int mine) {
  tessera::emulated::block_together(&mine, [](tessera::emulated::Payloads all, int threads) {
    int any = 0;
    for (int i = 0; i < threads; ++i) {
      if (all[i] != nullptr) any |= *static_cast<int*>(all[i]);
    }
    for (int i = 0; i < threads; ++i) {
      if (all[i] != nullptr) *static_cast<int*>(all[i]) = any;
    }
  });
  return mine;
}

inline void __syncwarp(unsigned mask = ~0u) {
  tessera::emulated::warp_together(mask, nullptr, [](tessera::emulated::Payloads) {});
}

// ---- across a warp ------------------------------------------------------------------------------

namespace tessera::emulated {

template <typename T>
struct Exchange {
  T value;     // brought, and then received
  int source;  // the lane to receive from
};

// A lane that reads from one that takes no part gets its own value, as on a GPU.
template <typename T>
T exchange(unsigned mask, T value, int source) {
  Exchange<T> mine{value, source};
  warp_together(mask, &mine, [](Payloads all) {
    T brought[kWarpSize] = {};
    for (int i = 0; i < kWarpSize; ++i) {
      if (all[i] != nullptr) brought[i] = static_cast<Exchange<T>*>(all[i])->value;
    }
    for (int i = 0; i < kWarpSize; ++i) {
      if (all[i] == nullptr) continue;
      auto& lane = *static_cast<Exchange<T>*>(all[i]);
      if (lane.source >= 0 && lane.source < kWarpSize && all[lane.source] != nullptr) {
        lane.value = brought[lane.source];
      }
    }
  });
  return mine.value;
}

template <typename T, typename Fold>
T reduce(unsigned mask, T value, Fold) {
  warp_together(mask, &value, [](Payloads all) {
    T* first = nullptr;
    for (int i = 0; i < kWarpSize; ++i) {
      if (all[i] == nullptr) continue;
      T* lane = static_cast<T*>(all[i]);
      if (first == nullptr) {
        first = lane;
      } else {
        *first = Fold()(*first, *lane);
      }
    }
    for (int i = 0; i < kWarpSize; ++i) {
      if (all[i] != nullptr) *static_cast<T*>(all[i]) = *first;
    }
  });
  return value;
}

}  // namespace tessera::emulated

template <typename T>
T __shfl_sync(unsigned mask, T value, int source) {
  return tessera::emulated::exchange(mask, value, source % tessera::emulated::kWarpSize);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int distance) {
  return tessera::emulated::exchange(mask, value, tessera::emulated::lane_index() ^ distance);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance) {
  return tessera::emulated::exchange(mask, value,
                                     tessera::emulated::lane_index() - static_cast<int>(distance));
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, int distance) {
  return tessera::emulated::exchange(mask, value, tessera::emulated::lane_index() + distance);
}

inline unsigned __ballot_sync(unsigned mask, bool mine) {
  const unsigned bit = mine ? 1u << tessera::emulated::lane_index() : 0u;
  return tessera::emulated::reduce(mask, bit, [](unsigned a, unsigned b) { return a | b; });
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value) {
  return tessera::emulated::reduce(mask, value,
                                   [](unsigned a, unsigned b) { return std::max(a, b); });
}
