// The result of attention, in the form that the next product reads (attention.cuh).
#pragma once

#include "cuda/decode/call.h"
#include "cuda/tile/exp2.cuh"

namespace tessera::cuda::decode {

// The heads' output, merged from all splits: `vectors` times four neighbours, from element first +
// 4 i on, with i = thread, thread + kThreads, ... It takes a few splits at a time, whose loads are
// in flight together.
template <int vectors>
struct Attended {
  static constexpr int kAtOnce = vectors > 2 ? 3 : 4;
  float4 out[vectors] = {};

  __device__ Attended(const Call& call, int splits, int first, int count, int thread) {
    const int width = call.heads * call.dim;
    float most[vectors], sum[vectors] = {};
    int element[vectors], head[vectors];
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      most[v] = -1e30f;
      element[v] = first + 4 * min(thread + v * kThreads, count - 1);
      head[v] = element[v] / call.dim;
    }
#pragma unroll 1
    for (int s0 = 0; s0 < splits; s0 += kAtOnce) {
      float2 softmax[vectors][kAtOnce];
      float4 values[vectors][kAtOnce];
#pragma unroll
      for (int v = 0; v < vectors; ++v) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          softmax[v][i] = {-1e30f, 0};
          values[v][i] = {};
          if (s0 + i >= splits) continue;
          softmax[v][i] = __ldcg(reinterpret_cast<const float2*>(call.softmaxes) +
                                 (s0 + i) * call.heads + head[v]);
          values[v][i] = __ldcg(
              reinterpret_cast<const float4*>(call.attended + (s0 + i) * width + element[v]));
        }
      }
#pragma unroll
      for (int v = 0; v < vectors; ++v) {
        const float before = most[v];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) most[v] = fmaxf(most[v], softmax[v][i].x);
        const float shrink = fast_exp2(before - most[v]);
        sum[v] *= shrink;
        out[v] = scaled_by(out[v], shrink);
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const float weight = fast_exp2(softmax[v][i].x - most[v]);
          const float4 &value = values[v][i], &old = out[v];
          sum[v] += weight * softmax[v][i].y;
          out[v] = {old.x + weight * value.x, old.y + weight * value.y, old.z + weight * value.z,
                    old.w + weight * value.w};
        }
      }
    }
#pragma unroll
    for (int v = 0; v < vectors; ++v) out[v] = scaled_by(out[v], 1.f / sum[v]);
  }

 private:
  __device__ static float4 scaled_by(const float4& x, float scale) {
    return {x.x * scale, x.y * scale, x.z * scale, x.w * scale};
  }
};

}  // namespace tessera::cuda::decode
