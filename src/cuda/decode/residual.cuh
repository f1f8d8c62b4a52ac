// The residual stream x in the persistent kernel. Every block has all of it, in shared memory, in
// f32. Thread t has vectors t, t + kThreads, ... of eight neighbours each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/decode/call.h"
#include "cuda/decode/layer_kinds.cuh"
#include "cuda/linear/layout/fragments.cuh"
#include "cuda/tile/element.cuh"
#include "cuda/tile/grid_dependency.cuh"
#include "cuda/tile/warp.cuh"

namespace tessera::cuda::decode {

// Eight neighbours.
struct Eight {
  float4 low, high;
};

template <typename T>
__device__ inline Eight in_floats(const uint4& words) {
  const auto half = [](std::uint32_t word) { return to_f32(T{static_cast<std::uint16_t>(word)}); };
  return {{half(words.x), half(words.x >> 16), half(words.y), half(words.y >> 16)},
          {half(words.z), half(words.z >> 16), half(words.w), half(words.w >> 16)}};
}
template <typename T>
__device__ inline uint2 in_halves(const float4& x) {
  return {halves_of<T>(x.x, x.y), halves_of<T>(x.z, x.w)};
}
template <typename T>
__device__ inline uint4 in_halves(const Eight& x) {
  const uint2 low = in_halves<T>(x.low), high = in_halves<T>(x.high);
  return {low.x, low.y, high.x, high.y};
}
__device__ inline float4 plus(const float4& a, const float4& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}
__device__ inline float4 affine(const float4& x, const float4& w, const float4& b) {
  return {x.x * w.x + b.x, x.y * w.y + b.y, x.z * w.z + b.z, x.w * w.w + b.w};
}
__device__ inline float4 scaled(const float4& x, float scale, const float4& w) {
  return {x.x * scale * w.x, x.y * scale * w.y, x.z * scale * w.z, x.w * scale * w.w};
}
__device__ inline float total(const float4& x) { return (x.x + x.y) + (x.z + x.w); }
__device__ inline float total_of_squares(const Eight& x) {
  const float4 &a = x.low, &b = x.high;
  return total(
      {a.x * a.x + b.x * b.x, a.y * a.y + b.y * b.y, a.z * a.z + b.z * b.z, a.w * a.w + b.w * b.w});
}

// A thread's vectors of hidden numbers.
template <int vectors>
struct OwnVectors {
  __device__ static int at(int v) { return static_cast<int>(threadIdx.x) + v * kThreads; }
  __device__ static bool has(const Call& call, int v) { return 8 * at(v) < call.hidden; }
};

// The vectors of a norm's weight or bias, in their stored type.
template <int vectors>
struct NormVectors {
  uint4 words[vectors];

  NormVectors() = default;
  __device__ NormVectors(const Call& call, const void* from) {
    using Own = OwnVectors<vectors>;
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      if (Own::has(call, v)) words[v] = static_cast<const uint4*>(from)[Own::at(v)];
    }
  }
};

template <typename T, int vectors>
class Residual {
  using Own = OwnVectors<vectors>;

 public:
  __device__ Residual(const Call& call, Eight* x) : call_(call), x_(x) {}

  // Starts from these numbers; null: from NaN.
  __device__ void start(const void* from) {
    constexpr std::uint32_t kNan = 0x7fff7fffu;
    each([&](int v) {
      uint4 words{kNan, kNan, kNan, kNan};
      if (from != nullptr) words = static_cast<const uint4*>(from)[Own::at(v)];
      at(v) = in_floats<T>(words);
    });
  }
  // Adds the products' results, which are in `parts` parts.
  __device__ void add_sums(int parts) {
    const int pitch = call_.hidden / 4;
    Eight of_parts[vectors][kMostParts] = {};
    each([&](int v) {
      const auto* sums = reinterpret_cast<const float4*>(call_.sums) + 2 * Own::at(v);
#pragma unroll
      for (int p = 0; p < kMostParts; ++p) {
        if (p < parts) of_parts[v][p] = {__ldcg(sums + p * pitch), __ldcg(sums + p * pitch + 1)};
      }
    });
    each([&](int v) {
#pragma unroll
      for (int p = 0; p < kMostParts; ++p) {
        at(v) = {plus(at(v).low, of_parts[v][p].low), plus(at(v).high, of_parts[v][p].high)};
      }
    });
  }

  // Layer norms of x, one for each product that reads them. `partial`: two floats of each warp.
  // Squares are of distances from the last layer's mean, so that nothing cancels if the mean is
  // large.
  template <int norms>
  __device__ void layer_norms(const NormVectors<vectors> (&weights)[norms],
                              const NormVectors<vectors> (&biases)[norms], float2* partial,
                              T* const (&to)[norms]) {
    const float shift = mean_;
    const float4 away{-shift, -shift, -shift, -shift};
    Eight off[vectors] = {};
    float2 sums{};
    each([&](int v) {
      off[v] = {plus(at(v).low, away), plus(at(v).high, away)};
      sums.x += total(off[v].low) + total(off[v].high);
      sums.y += total_of_squares(off[v]);
    });
    sums.x = warp_reduce(sums.x, Sum());
    sums.y = warp_reduce(sums.y, Sum());
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sums;
    Signals::sync_workers();
    sums = partial[0];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) sums = {sums.x + partial[w].x, sums.y + partial[w].y};
    const float size = 1.f / static_cast<float>(call_.hidden), from_shift = sums.x * size;
    const float variance = fmaxf(sums.y * size - from_shift * from_shift, 0.f);
    const float inverse = rsqrtf(variance + call_.eps), less = -from_shift * inverse;
    mean_ = shift + from_shift;
    const float4 scale{inverse, inverse, inverse, inverse}, offset{less, less, less, less};
    each([&](int v) {
      const Eight x{affine(off[v].low, scale, offset), affine(off[v].high, scale, offset)};
#pragma unroll
      for (int n = 0; n < norms; ++n) {
        const Eight w = in_floats<T>(weights[n].words[v]), b = in_floats<T>(biases[n].words[v]);
        reinterpret_cast<uint4*>(to[n])[Own::at(v)] =
            in_halves<T>(Eight{affine(x.low, w.low, b.low), affine(x.high, w.high, b.high)});
      }
    });
  }

  // The RMS norm of x.
  __device__ void rms_norm(const NormVectors<vectors>& weight, float2* partial, T* to) {
    float squares = 0;
    each([&](int v) { squares += total_of_squares(at(v)); });
    squares = warp_reduce(squares, Sum());
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32].x = squares;
    Signals::sync_workers();
    squares = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) squares += partial[w].x;
    const float inverse = rsqrtf(squares / static_cast<float>(call_.hidden) + call_.eps);
    each([&](int v) {
      const Eight w = in_floats<T>(weight.words[v]);
      reinterpret_cast<uint4*>(to)[Own::at(v)] = in_halves<T>(
          Eight{scaled(at(v).low, inverse, w.low), scaled(at(v).high, inverse, w.high)});
    });
  }

  __device__ void store() {
    each([&](int v) { static_cast<uint4*>(call_.x)[Own::at(v)] = in_halves<T>(at(v)); });
  }

 private:
  // Calls vector(v) for each of the thread's vectors.
  template <typename Do>
  __device__ void each(Do&& vector) {
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      if (Own::has(call_, v)) vector(v);
    }
  }
  __device__ Eight& at(int v) { return x_[Own::at(v)]; }

  const Call& call_;
  float mean_ = 0;
  Eight* x_;
};

// Prefetches the next layer's norm weights into the L2 cache, a few lines in each block.
template <typename Layer>
__device__ inline void fetch_norms(const Call& call, const LayerWeights& layer, int warp,
                                   int lane) {
  constexpr int kLine = 128;
  static_assert(offsetof(LayerWeights, norm_bias) ==
                offsetof(LayerWeights, norm_weight) + 2 * sizeof(void*));
  const int byte = (static_cast<int>(blockIdx.x) * 32 + lane) * kLine;
  if (warp < Layer::kNormVectors && byte < 2 * call.hidden) {
    prefetch(static_cast<const char*>((&layer.norm_weight[0])[warp]) + byte);
  }
}

}  // namespace tessera::cuda::decode
