// The end of a tile of mma.cuh. The sums of warps that share features are added up, and so are the
// parts of several blocks. The full sums go through the epilogue to the output.
//
// Lanes hold sums in mma.sync's order. By way of shared memory they get into the order of the
// output, where a thread takes eight neighbouring features of a token at a time.
#pragma once

#include "cuda/linear/epilogue.cuh"
#include "cuda/linear/layout/fragments.cuh"
#include "cuda/linear/layout/tile_layout.h"
#include "cuda/linear/matrix.h"
#include "cuda/linear/plan/mma_plan.h"
#include "cuda/tile/grid_dependency.cuh"
#include "cuda/tile/last_block.cuh"
#include "cuda/tile/thread_index.cuh"

namespace tessera::cuda {

struct MmaOutput {
  Epilogue<MatrixRows> epilogue;
  const float* row_scales[2];  // of the weight, or of gate and up
  bool gated;
  bool vectors;  // eight numbers may be read and written at a time
  int m;
  std::int64_t n;
  float* parts;            // [block][its first tile, another][token][feature]
  std::int32_t* counters;  // [tile], zeros
};

// A block's place in the output: the features by the tokens of its tile.
struct MmaPlace {
  int tile, first_token, first_feature;
  int features, sharers_log2;
  int block, first_block, last_block;  // this block, and the blocks with a part of the tile

  __device__ bool whole() const { return first_block == last_block; }
  // The place of a block's part. The block with the first part of a tile gets to that tile last.
  __device__ std::int64_t part(int of_block) const {
    return 2 * std::int64_t{of_block} + (of_block == first_block ? 1 : 0);
  }
};

// ---- eight features -----------------------------------------------------------------------------

inline constexpr int kEight = 8;

// The factors and biases of eight features.
struct EightEnds {
  float scales[kEight], biases[kEight];

  __device__ void load(const float* row_scales, float gain, const AnyFloats& bias, std::int64_t n,
                       std::int64_t features) {
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      const bool there = n + i < features;
      scales[i] = there ? gain * row_scales[n + i] : 0;
      biases[i] = there && bias.given() ? bias[n + i] : 0;
    }
  }
  __device__ void apply(float (&values)[kEight]) const {
#pragma unroll
    for (int i = 0; i < kEight; ++i) values[i] = values[i] * scales[i] + biases[i];
  }
};

__device__ inline void add_eight(const float* from, float (&values)[kEight]) {
  const float4 low = *reinterpret_cast<const float4*>(from);
  const float4 high = *reinterpret_cast<const float4*>(from + 4);
  values[0] += low.x, values[1] += low.y, values[2] += low.z, values[3] += low.w;
  values[4] += high.x, values[5] += high.y, values[6] += high.z, values[7] += high.w;
}

// 16 bytes at a time.
template <typename T>
__device__ inline void store_eight(const Epilogue<MatrixRows>& epilogue, float (&values)[kEight],
                                   int m, std::int64_t n) {
  if (epilogue.has_residual) {
    const uint4 added = *reinterpret_cast<const uint4*>(epilogue.residual.row<const T>(m) + n);
    const Halves halves[4] = {added.x, added.y, added.z, added.w};
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      values[i] += to_f32(T{static_cast<std::uint16_t>(halves[i / 2] >> (16 * (i % 2)))});
    }
  }
  Halves halves[4];
#pragma unroll
  for (int p = 0; p < 4; ++p) halves[p] = halves_of<T>(values[2 * p], values[2 * p + 1]);
  *reinterpret_cast<uint4*>(epilogue.out.row<T>(m) + n) = {halves[0], halves[1], halves[2],
                                                           halves[3]};
}

template <typename T>
__device__ inline void store_each(const Epilogue<MatrixRows>& epilogue,
                                  const float (&values)[kEight], int m, std::int64_t n,
                                  std::int64_t features) {
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    if (n + i < features) epilogue.store_as<T>(values[i], m, n + i);
  }
}

__device__ inline void store_values(const MmaOutput& output, float (&values)[kEight], int m,
                                    std::int64_t n) {
  const Epilogue<MatrixRows>& epilogue = output.epilogue;
  if (epilogue.dtype == DType::f32) {
    store_each<float>(epilogue, values, m, n, output.n);
  } else if (epilogue.dtype == DType::f16) {
    if (output.vectors) return store_eight<Half>(epilogue, values, m, n);
    store_each<Half>(epilogue, values, m, n, output.n);
  } else {
    if (output.vectors) return store_eight<BFloat16>(epilogue, values, m, n);
    store_each<BFloat16>(epilogue, values, m, n, output.n);
  }
}

// ---- a block's sums -----------------------------------------------------------------------------

template <int kTokens>
struct MmaEpilogue {
  static constexpr int kPass = mma_pass_tokens(kTokens), kPasses = kTokens / kPass;
  static constexpr int kGroups = kPass / 8;
  const MmaOutput& output;
  const MmaPlace& at;
  float* staged;
  int pitch, tokens;  // that exist

  __device__ MmaEpilogue(const MmaOutput& all, const MmaPlace& place, float* shared)
      : output(all),
        at(place),
        staged(shared),
        pitch(mma_sum_pitch(place.features)),
        tokens(min(kTokens, all.m - place.first_token)) {}

  // Puts sums, [tile of the warp][eight tokens][sum] in mma.sync's order, into shared memory.
  __device__ void put_sums(const float (&sums)[2][kTokens / 8][4], int pass) const {
    const int thread = fresh_thread_index(), lane = thread % 32;
    const int sharer = thread / 32 & ((1 << at.sharers_log2) - 1);
    const int feature = (thread / 32 >> at.sharers_log2) * kMmaWarpFeatures + lane / 4;
    float* mine = staged + (sharer * kPass + lane % 4 * 2) * pitch + feature;
#pragma unroll
    for (int c = 0; c < kGroups; ++c) {
#pragma unroll
      for (int i = 0; i < 2 * 4; ++i) {
        const int tile = i / 4, r = i % 4;
        mine[(c * 8 + r % 2) * pitch + tile * kTileHeight + r / 2 * 8] =
            pass == 0 ? sums[tile][c][r] : sums[tile][kTokens / 8 - kGroups + c][r];
      }
    }
  }

  // A block's part, in memory.
  __device__ float* part(int block, int pass) const {
    return output.parts + (at.part(block) * kTokens + pass * kPass) * at.features;
  }

  // Writes the staged sums to memory.
  __device__ void store_part(int pass) const {
    const int fours = at.features / 4, thread = fresh_thread_index();
    const int first = thread % fours * 4;
    float* to = part(at.block, pass) + first;
    for (int token = thread / fours; token < min(kPass, tokens - pass * kPass);
         token += kMmaThreads / fours) {
      float4 sum = *reinterpret_cast<const float4*>(staged + token * pitch + first);
      if (at.sharers_log2 > 0) {
        const float4 other =
            *reinterpret_cast<const float4*>(staged + (kPass + token) * pitch + first);
        sum.x += other.x, sum.y += other.y, sum.z += other.z, sum.w += other.w;
      }
      __stcg(reinterpret_cast<float4*>(to + token * at.features), sum);
    }
  }

  // Adds up all parts of the tile from memory, in order.
  __device__ void load_parts(int pass) const {
    constexpr int kAtOnce = 4;  // tokens whose loads are in flight together
    const int fours = at.features / 4, thread = fresh_thread_index();
    const int first = thread % fours * 4, step = kMmaThreads / fours;
    const int last = min(kPass, tokens - pass * kPass) - 1;
    for (int token = thread / fours; token <= last; token += kAtOnce * step) {
      float4 all[kAtOnce] = {};
#pragma unroll 2
      for (int block = at.first_block; block <= at.last_block; ++block) {
        const float* from = part(block, pass) + first;
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const int row = min(token + i * step, last);
          const float4 four = __ldcg(reinterpret_cast<const float4*>(from + row * at.features));
          all[i].x += four.x, all[i].y += four.y, all[i].z += four.z, all[i].w += four.w;
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int row = min(token + i * step, last);
        *reinterpret_cast<float4*>(staged + row * pitch + first) = all[i];
      }
    }
  }

  // Writes the staged sums of these sharers to the output. A thread keeps its features. In a gated
  // product, up follows its gate.
  __device__ void write(const EightEnds& ends, const EightEnds& up_ends, int sharers,
                        int pass) const {
    const int eights = (at.features >> output.gated) / kEight, thread = fresh_thread_index();
    const int eight = thread % eights;
    const std::int64_t n = std::int64_t{at.first_feature} + eight * kEight;
    if (n >= output.n) return;
    const int first =
        output.gated ? eight / 2 * (2 * kTileHeight) + eight % 2 * kEight : eight * kEight;
    const Activation activation = output.epilogue.activation;
#pragma unroll 1
    for (int token = thread / eights; token < min(kPass, tokens - pass * kPass);
         token += kMmaThreads / eights) {
      float values[kEight] = {}, ups[kEight] = {};
      for (int sharer = 0; sharer < sharers; ++sharer) {
        const float* from = staged + (sharer * kPass + token) * pitch + first;
        add_eight(from, values);
        if (output.gated) add_eight(from + kTileHeight, ups);
      }
      ends.apply(values);
      if (activation != Activation::none) {
#pragma unroll
        for (float& value : values) value = activate_apart(activation, value);
      }
      if (output.gated) {
        up_ends.apply(ups);
#pragma unroll
        for (int i = 0; i < kEight; ++i) values[i] *= ups[i];
      }
      store_values(output, values, at.first_token + pass * kPass + token, n);
    }
  }
};

// Prefetches what the epilogue of a block's features reads into the L2 cache.
__device__ inline void prefetch_ends(const MmaOutput& output, std::int64_t first_feature,
                                     int features) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= features || first_feature + i >= output.n) return;
  const auto fetch = [&](const float* row_scales, const AnyFloats& bias) {
    prefetch(row_scales + first_feature + i);
    if (bias.given()) {
      prefetch(static_cast<const char*>(bias.data) + (first_feature + i) * size_of(bias.dtype));
    }
  };
  fetch(output.row_scales[0], output.epilogue.bias);
  if (output.gated) fetch(output.row_scales[1], output.epilogue.up_bias);
}

// Called by all threads.
template <int kTokens>
__device__ inline void block_epilogue(const MmaOutput& output, const MmaPlace& at, float gain,
                                      const float (&sums)[2][kTokens / 8][4], float* staged) {
  const MmaEpilogue<kTokens> block(output, at, staged);
  const int eights = (at.features >> output.gated) / kEight;
  const std::int64_t n = std::int64_t{at.first_feature} + fresh_thread_index() % eights * kEight;
  EightEnds ends, up_ends;
  ends.load(output.row_scales[0], gain, output.epilogue.bias, n, output.n);
  if (output.gated) up_ends.load(output.row_scales[1], gain, output.epilogue.up_bias, n, output.n);
  // First this block's own sums; then, if it is the last block with a part, the sums of all. One
  // loop for both, because code that runs once has to be fetched from memory.
  constexpr int kPasses = MmaEpilogue<kTokens>::kPasses;
#pragma unroll 1
  for (int i = 0; i < (at.whole() ? kPasses : 2 * kPasses); ++i) {
    const int pass = i % kPasses;
    const bool own = i < kPasses;
    if (i == kPasses &&
        !comes_last(output.counters + at.tile, at.last_block - at.first_block + 1)) {
      return;
    }
    __syncthreads();  // the old contents have been read
    if (own) {
      block.put_sums(sums, pass);
    } else {
      block.load_parts(pass);
    }
    __syncthreads();
    if (own && !at.whole()) {
      block.store_part(pass);
    } else {
      block.write(ends, up_ends, own ? 1 << at.sharers_log2 : 1, pass);
    }
  }
}

}  // namespace tessera::cuda
