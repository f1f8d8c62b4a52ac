// What becomes of a tile's sums (panels.cuh): parts of it are put into memory and added up, the
// whole goes through the epilogue to the output.
//
// Sums are as wgmma leaves them, features by tokens; in the output features lie side by side. Pairs
// of 16-bit numbers are turned in registers, eight features by eight tokens at a time.
#pragma once

#include "cuda/linear/epilogue.cuh"
#include "cuda/linear/fragments.cuh"
#include "cuda/linear/matrix.h"
#include "cuda/linear/tile_layout.h"
#include "cuda/tile/flag.cuh"
#include "cuda/tile/grid_dependency.cuh"
#include "cuda/tile/turn.cuh"
#include "cuda/tile/warpgroup.cuh"

namespace tessera::cuda {

// ---- parts --------------------------------------------------------------------------------------

// Of each run at most one: [eight tokens][thread] of four sums, and a flag for each warp.
struct PanelParts {
  float4* sums;
  std::uint32_t* flags;
};

template <int kTokens, int kWarps>
__device__ inline void put_part(const PanelParts& parts, int run,
                                const float (&sums)[kTokens / 2]) {
  float4* to = parts.sums + std::int64_t{run} * (kTokens / 8 * kWarps * 32) + threadIdx.x;
#pragma unroll
  for (int j = 0; j < kTokens / 8; ++j) {
    __stcg(to + j * (kWarps * 32),
           float4{sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]});
  }
}
template <int kWarps>
__device__ inline void announce_part(const PanelParts& parts, int run) {
  tile::raise_flag(parts.flags + run * kWarps + threadIdx.x / 32);
}

// Until `count` parts are there, from `first` on.
template <int kWarps>
__device__ inline void wait_for_parts(const PanelParts& parts, int first, int count) {
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < count; i += 32) {
    const int mine = min(i + lane, count - 1);
    tile::wait_for_flags(parts.flags + (first + mine) * kWarps + threadIdx.x / 32);
  }
}

template <int kTokens, int kWarps>
__device__ inline void add_part(const PanelParts& parts, int run, float (&sums)[kTokens / 2]) {
  const float4* from = parts.sums + std::int64_t{run} * (kTokens / 8 * kWarps * 32) + threadIdx.x;
#pragma unroll
  for (int j = 0; j < kTokens / 8; ++j) {
    const float4 part = __ldcg(from + j * (kWarps * 32));
    sums[4 * j] += part.x, sums[4 * j + 1] += part.y;
    sums[4 * j + 2] += part.z, sums[4 * j + 3] += part.w;
  }
}

// ---- the output ---------------------------------------------------------------------------------

struct PanelOutput {
  Finish<MatrixRows> finish;
  const float* row_scales;
  std::int64_t rows, features;
  // Of 16-bit numbers: they may be read and written two at a time; they may be written eight at a
  // time, and nothing is added to them.
  bool pairs, eights;
};

// A warp's share of a tile: 16 features of kTokens tokens.
struct WarpOutput {
  std::int64_t first_token, first_feature;
  int tokens, features;  // from there on that there are, or a few more than the tile has

  __device__ WarpOutput(const PanelOutput& output, std::int64_t token, std::int64_t feature)
      : first_token(token),
        first_feature(feature),
        tokens(static_cast<int>(min(output.rows - token, std::int64_t{1} << 20))),
        features(static_cast<int>(min(output.features - feature, std::int64_t{1} << 20))) {}
};

// Sum i of a lane is that of feature lane / 4 + side_of(i) * 8 and token token_of(i, lane).
constexpr int side_of(int i) { return i / 2 % 2; }
__device__ inline int token_of(int i, int lane) { return i / 4 * 8 + lane % 4 * 2 + i % 2; }

// Each where it is: a warp's store fills 32 bytes of each of four tokens.
template <int n>
__device__ inline void store_f32(const PanelOutput& output, const WarpOutput& at,
                                 const float (&values)[n]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < n; ++i) {
    const int token = token_of(i, lane), feature = lane / 4 + side_of(i) * 8;
    if (token < at.tokens && feature < at.features) {
      output.finish.template store_as<float>(values[i], at.first_token + token,
                                             at.first_feature + feature);
    }
  }
}

// Two neighbours of 16 bits, of which `count` are there.
template <typename T>
__device__ inline Pair load_two(const T* from, int count, bool aligned) {
  if (aligned) return count > 0 ? *reinterpret_cast<const Pair*>(from) : 0;
  const Pair low = count > 0 ? from[0].bits : 0, high = count > 1 ? from[1].bits : 0;
  return high << 16 | low;
}
template <typename T>
__device__ inline void store_two(T* to, Pair pair, int count, bool aligned) {
  if (aligned) {
    if (count > 0) *reinterpret_cast<Pair*>(to) = pair;
    return;
  }
  if (count > 0) to[0].bits = static_cast<std::uint16_t>(pair);
  if (count > 1) to[1].bits = static_cast<std::uint16_t>(pair >> 16);
}

// Of token lane / 4 (and eight more each time) and of features lane % 4 * 2 on: as lanes hold them
// when an 8 x 8 matrix has been turned.
template <typename T, int n>
__device__ inline void store_turned_pairs(const PanelOutput& output, const WarpOutput& at,
                                          float (&values)[n]) {
  const int lane = threadIdx.x % 32;
  const Finish<MatrixRows>& finish = output.finish;
  const int feature = lane % 4 * 2;
  T* out = finish.out.row<T>(at.first_token + lane / 4) + at.first_feature + feature;
  const T* residual =
      finish.residual.row<const T>(at.first_token + lane / 4) + at.first_feature + feature;
#pragma unroll
  for (int i = 0; i < n; i += 2) {
    const int side = side_of(i);
    const bool there = i / 4 * 8 + lane / 4 < at.tokens;
    const int count = there ? at.features - feature - 8 * side : 0;
    if (finish.has_residual) {
      const Pair added = tile::turn_8x8(load_two(residual + 8 * side, count, output.pairs));
      values[i] += to_f32(T{static_cast<std::uint16_t>(added)});
      values[i + 1] += to_f32(T{static_cast<std::uint16_t>(added >> 16)});
    }
    const Pair pair = tile::turn_8x8(pair_of<T>(values[i], values[i + 1]));
    store_two(out + 8 * side, pair, count, output.pairs);
    if (side == 0) continue;
    out += 8 * finish.out.stride;
    residual += 8 * finish.residual.stride;
  }
}

// What finish_tile() reads that no kernel writes.
__device__ inline void prefetch_for_tile(const PanelOutput& output, std::int64_t first_feature) {
  const std::int64_t feature = first_feature + threadIdx.x % 16;
  if (threadIdx.x % 32 >= 16 || feature >= output.features) return;
  prefetch(output.row_scales + feature);
  const AnyFloats& bias = output.finish.bias;
  if (bias.given()) prefetch(static_cast<const char*>(bias.data) + feature * size_of(bias.dtype));
}

// By way of shared memory, where a warpgroup's 64 features of 32 tokens come together, so that few
// stores reach few lines of memory. Rows are apart by 16 bytes more than their length: then eight
// of them lie in different banks.
inline constexpr int kStagedTokens = 32;
inline constexpr int kStagedPitch = 64 * 2 + 16;  // bytes
inline constexpr int kStagedBytes = kStagedTokens * kStagedPitch;

template <typename T, int n>
__device__ inline void store_staged(const PanelOutput& output, const WarpOutput& at,
                                    const float (&values)[n], char* staged) {
  const int thread = threadIdx.x % tile::kWarpgroup, warp = thread / 32, lane = thread % 32;
  const int barrier = 1 + static_cast<int>(threadIdx.x) / tile::kWarpgroup;
  // stmatrix: of lanes 0 to 15 features 0 to 7 and 8 to 15 of eight tokens, then of the next eight.
  char* put = staged + (lane / 16 * 8 + lane % 8) * kStagedPitch + warp * 32 + lane / 8 % 2 * 16;
  const char* take = staged + thread / 8 * kStagedPitch + thread % 8 * 16;
  const int token = thread / 8, feature = thread % 8 * 8 - warp * kTileHeight;
  T* out = output.finish.out.row<T>(at.first_token + token) + at.first_feature + feature;
#pragma unroll
  for (int first = 0; first < n * 2; first += kStagedTokens) {
    tile::barrier_sync(barrier, tile::kWarpgroup);  // what was there has been read
#pragma unroll
    for (int i = 0; i < kStagedTokens; i += 16) {
      Pair pairs[4];
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const int from = (first + i) / 2 + 2 * p;
        pairs[p] = pair_of<T>(values[from], values[from + 1]);
      }
      tile::store_turned(put + i * kStagedPitch, pairs);
    }
    tile::barrier_sync(barrier, tile::kWarpgroup);
#pragma unroll
    for (int i = 0; i < kStagedTokens; i += tile::kWarpgroup / 8) {
      if (first + i + token < at.tokens && feature < at.features) {
        *reinterpret_cast<uint4*>(out + (first + i) * output.finish.out.stride) =
            *reinterpret_cast<const uint4*>(take + i * kStagedPitch);
      }
    }
  }
}

template <typename T, int n>
__device__ inline void store_16_bits(const PanelOutput& output, const WarpOutput& at,
                                     float (&values)[n], char* staged) {
  if (output.eights) {
    store_staged<T>(output, at, values, staged);
  } else {
    store_turned_pairs<T>(output, at, values);
  }
}

template <int n>
__device__ inline void finish_tile(const PanelOutput& output, float gain, const WarpOutput& at,
                                   float (&sums)[n], char* staged) {
  const int lane = threadIdx.x % 32;
  const Finish<MatrixRows>& finish = output.finish;
  float scales[2], biases[2];
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const int feature = lane / 4 + 8 * side;
    const bool there = feature < at.features;
    scales[side] = there ? gain * output.row_scales[at.first_feature + feature] : 0;
    biases[side] = there && finish.bias.given() ? finish.bias[at.first_feature + feature] : 0;
  }
#pragma unroll
  for (int i = 0; i < n; ++i) sums[i] = sums[i] * scales[side_of(i)] + biases[side_of(i)];
  if (finish.activation != Activation::none) {
#pragma unroll
    for (float& sum : sums) sum = activate_apart(finish.activation, sum);
  }
  if (finish.dtype == DType::f32) {
    store_f32(output, at, sums);
  } else if (finish.dtype == DType::f16) {
    store_16_bits<Half>(output, at, sums, staged);
  } else {
    store_16_bits<BFloat16>(output, at, sums, staged);
  }
}

}  // namespace tessera::cuda
