// The end of a tile of panels.cuh. Sums of parts of the tile go to memory and are added up; the
// full sums go through the epilogue to the output.
//
// wgmma leaves sums as features by tokens, but in the output the features of a token are adjacent.
// So 16-bit numbers are transposed, eight features by eight tokens at a time. The epilogue is a
// loop over groups of tokens. Its code runs once for each tile and has to be fetched from memory;
// unrolled code would take longer to fetch than to run. So sums go through shared memory, where an
// index can select them.
#pragma once

#include "cuda/linear/epilogue.cuh"
#include "cuda/linear/layout/fragments.cuh"
#include "cuda/linear/layout/tile_layout.h"
#include "cuda/linear/matrix.h"
#include "cuda/tile/flag.cuh"
#include "cuda/tile/grid_dependency.cuh"
#include "cuda/tile/hopper/warpgroup.cuh"
#include "cuda/tile/transpose.cuh"

namespace tessera::cuda {

// ---- parts --------------------------------------------------------------------------------------

// At most one part for each run: [eight tokens][thread] of four sums, and a flag for each warp.
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

// Waits until `count` parts, from `first` on, are written.
template <int kWarps>
__device__ inline void wait_for_parts(const PanelParts& parts, int first, int count) {
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < count; i += 32) {
    const int mine = min(i + lane, count - 1);
    tile::take_flags(parts.flags + (first + mine) * kWarps + threadIdx.x / 32);
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
  Epilogue<MatrixRows> epilogue;
  const float* row_scales;
  std::int64_t m, n;
  // For 16-bit numbers. twos: they may be read and written two at a time. eights: they may be
  // written eight at a time, and nothing is added to them.
  bool twos, eights;
  // cuda.wide: by lines (wide_epilogue.cuh).
  bool lines = false;
  const float* up_row_scales = nullptr;  // of a gated product
};

// A warp's share of a tile: 16 features of kTokens tokens.
struct WarpOutput {
  std::int64_t first_token, first_feature;
  int tokens, features;  // that exist from there on

  // Ends at token `end_token` and feature `end_feature` at the latest.
  __device__ WarpOutput(const PanelOutput& output, std::int64_t token, std::int64_t end_token,
                        std::int64_t feature, std::int64_t end_feature)
      : first_token(token),
        first_feature(feature),
        tokens(static_cast<int>(min(output.m, end_token) - token)),
        features(static_cast<int>(min(output.n, end_feature) - feature)) {}

  __device__ void skip_tokens(int count) {
    first_token += count;
    tokens -= count;
  }
};

// Sums of two groups of eight tokens; the second group is `step` tokens further. Sum i of a lane
// belongs to feature lane / 4 + side_of(i) * 8 and token token_of(i, lane, step).
constexpr int kGroupSums = 4;
constexpr int side_of(int i) { return i / 2 % 2; }
__device__ inline int token_of(int i, int lane, int step) {
  return i / kGroupSums * step + lane % 4 * 2 + i % 2;
}
using TwoGroups = float[2 * kGroupSums];

// Writers take two groups each time and go on to the next two. kBrief: in few instructions.

// Stores each number from its own lane: a warp's store fills 32 bytes of each of four tokens.
struct FloatsWriter {
  static constexpr bool kBrief = false;
  const PanelOutput& output;
  WarpOutput at;
  int step;

  __device__ FloatsWriter(const PanelOutput& all, const WarpOutput& mine, int second, char*)
      : output(all), at(mine), step(second) {}

  __device__ void operator()(const TwoGroups& values) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2 * kGroupSums; ++i) {
      const int token = token_of(i, lane, step), feature = lane / 4 + side_of(i) * 8;
      if (token < at.tokens && feature < at.features) {
        output.epilogue.template store_as<float>(values[i], at.first_token + token,
                                                 at.first_feature + feature);
      }
    }
    at.skip_tokens(2 * step);
  }
};

// Rounds two numbers to f16 or bf16, which is known only at run time.
__device__ inline Halves halves_as(bool f16, float first, float second) {
  return f16 ? halves_of<Half>(first, second) : halves_of<BFloat16>(first, second);
}
__device__ inline float value_as(bool f16, std::uint32_t bits) {
  const auto half = static_cast<std::uint16_t>(bits);
  return f16 ? to_f32(Half{half}) : to_f32(BFloat16{half});
}

// Two 16-bit neighbours, of which the first `count` exist.
__device__ inline Halves load_two(const std::uint16_t* from, int count, bool aligned) {
  if (aligned) return count > 0 ? *reinterpret_cast<const Halves*>(from) : 0;
  const Halves low = count > 0 ? from[0] : 0, high = count > 1 ? from[1] : 0;
  return high << 16 | low;
}
__device__ inline void store_two(std::uint16_t* to, Halves two, int count, bool aligned) {
  if (aligned) {
    if (count > 0) *reinterpret_cast<Halves*>(to) = two;
    return;
  }
  if (count > 0) to[0] = static_cast<std::uint16_t>(two);
  if (count > 1) to[1] = static_cast<std::uint16_t>(two >> 16);
}

// Writes two features, from lane % 4 * 2 on, of token lane / 4, as lanes hold them once an 8 x 8
// matrix has been transposed. Adds the residual first.
struct TwosWriter {
  static constexpr bool kBrief = false;
  const PanelOutput& output;
  WarpOutput at;
  int step;

  __device__ TwosWriter(const PanelOutput& all, const WarpOutput& mine, int second, char*)
      : output(all), at(mine), step(second) {}

  __device__ void operator()(TwoGroups& values) {
    const int lane = threadIdx.x % 32, feature = lane % 4 * 2;
    const Epilogue<MatrixRows>& epilogue = output.epilogue;
    const bool f16 = epilogue.dtype == DType::f16;
#pragma unroll
    for (int i = 0; i < 2 * kGroupSums; i += 2) {
      const int token = i / kGroupSums * step + lane / 4, first = feature + 8 * side_of(i);
      const int count = token < at.tokens ? at.features - first : 0;
      if (epilogue.has_residual) {
        const auto* residual =
            epilogue.residual.row<const std::uint16_t>(at.first_token + token) + at.first_feature;
        const Halves added = tile::transpose_8x8(load_two(residual + first, count, output.twos));
        values[i] += value_as(f16, added);
        values[i + 1] += value_as(f16, added >> 16);
      }
      const Halves two = tile::transpose_8x8(halves_as(f16, values[i], values[i + 1]));
      auto* out =
          epilogue.out.row<std::uint16_t>(at.first_token + token) + at.first_feature + first;
      store_two(out, two, count, output.twos);
    }
    at.skip_tokens(2 * step);
  }
};

// By way of this warp's shared memory, which collects 16 features of 16 tokens; a lane then stores
// eight features. Rows are padded by 16 bytes, so that eight of them lie in different banks.
inline constexpr int kStagedPitch = 2 * kTileHeight + 16;  // bytes
inline constexpr int kStagedBytes = 1024;  // of a warp: these rows, or two groups of sums
static_assert(16 * kStagedPitch <= kStagedBytes && 2 * kGroupSums * 32 * 4 <= kStagedBytes);

struct EightsWriter {
  static constexpr bool kBrief = true;
  char *put, *take;
  std::uint16_t* out;
  std::int64_t advance;
  int tokens, two_steps;  // tokens: how many exist from this lane's on
  bool f16;

  __device__ EightsWriter(const PanelOutput& output, const WarpOutput& at, int step, char* staged) {
    const int lane = threadIdx.x % 32;
    // stmatrix: lanes 0 to 15 address features 0 to 7 and 8 to 15 of the first eight tokens, the
    // other lanes those of the second eight.
    put = staged + (lane / 16 * 8 + lane % 8) * kStagedPitch + lane / 8 % 2 * 16;
    take = staged + lane / 2 * kStagedPitch + lane % 2 * 16;
    const int token = lane / 16 * step + lane / 2 % 8, feature = lane % 2 * 8;
    out =
        output.epilogue.out.row<std::uint16_t>(at.first_token + token) + at.first_feature + feature;
    f16 = output.epilogue.dtype == DType::f16;
    two_steps = 2 * step;
    advance = two_steps * output.epilogue.out.stride;
    tokens = feature < at.features ? at.tokens - token : 0;
  }

  __device__ void operator()(const TwoGroups& values) {
    Halves halves[4];
#pragma unroll
    for (int p = 0; p < 4; ++p) halves[p] = halves_as(f16, values[2 * p], values[2 * p + 1]);
    __syncwarp();  // the old contents have been read
    tile::store_transposed(put, halves);
    __syncwarp();
    if (tokens > 0) *reinterpret_cast<uint4*>(out) = *reinterpret_cast<const uint4*>(take);
    out += advance;
    tokens -= two_steps;
  }
};

// Calls fn(writer) with the writer for this output. step: tokens from the first group to the
// second.
template <typename F>
__device__ inline void with_writer(const PanelOutput& output, const WarpOutput& at, int step,
                                   char* staged, F&& fn) {
  if (output.epilogue.dtype == DType::f32) {
    fn(FloatsWriter(output, at, step, staged));
  } else if (output.eights) {
    fn(EightsWriter(output, at, step, staged));
  } else {
    fn(TwosWriter(output, at, step, staged));
  }
}

// Prefetches what a tile needs and no kernel writes.
__device__ inline void prefetch_for_tile(const PanelOutput& output, std::int64_t first_feature) {
  const std::int64_t feature = first_feature + threadIdx.x % 16;
  if (threadIdx.x % 32 >= 16 || feature >= output.n) return;
  prefetch(output.row_scales + feature);
  const AnyFloats& bias = output.epilogue.bias;
  if (bias.given()) prefetch(static_cast<const char*>(bias.data) + feature * size_of(bias.dtype));
}

// The factors and biases of a lane's two features.
struct FeatureEnds {
  float scales[2], biases[2];

  __device__ FeatureEnds(const PanelOutput& output, float gain, const WarpOutput& at)
      : FeatureEnds(output.row_scales, output.epilogue.bias, gain, at) {}
  __device__ FeatureEnds(const float* row_scales, const AnyFloats& bias, float gain,
                         const WarpOutput& at) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int feature = threadIdx.x % 32 / 4 + 8 * side;
      const bool there = feature < at.features;
      scales[side] = there ? gain * row_scales[at.first_feature + feature] : 0;
      biases[side] = there && bias.given() ? bias[at.first_feature + feature] : 0;
    }
  }

  // Waits until they have arrived. Otherwise the compiler would wait where they are used.
  __device__ void load() {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      asm volatile("" : "+f"(scales[side]), "+f"(biases[side])::"memory");
    }
  }

  __device__ void apply(Activation activation, TwoGroups& sums) const {
#pragma unroll
    for (int i = 0; i < 2 * kGroupSums; ++i) {
      sums[i] = sums[i] * scales[side_of(i)] + biases[side_of(i)];
    }
    if (activation == Activation::none) return;
#pragma unroll
    for (float& sum : sums) sum = activate_apart(activation, sum);
  }
};

// Selects two groups of a warp's sums by an index that the compiler does not know, by way of
// memory.
template <int n>
__device__ inline void pick_groups(const float (&sums)[n], int first, TwoGroups& two,
                                   char* staged) {
  auto* mine = reinterpret_cast<float4*>(staged) + threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < n / kGroupSums; ++j) {
    if (j / 2 * 2 == first) {
      mine[j % 2 * 32] = {sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]};
    }
  }
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const float4 four = mine[j * 32];
    two[4 * j] = four.x, two[4 * j + 1] = four.y, two[4 * j + 2] = four.z, two[4 * j + 3] = four.w;
  }
}

// The epilogue of all of a warp's sums, from registers.
template <int n>
__device__ inline void tile_epilogue(const PanelOutput& output, const FeatureEnds& ends,
                                     const WarpOutput& at, const float (&sums)[n], char* staged) {
  with_writer(output, at, 8, staged, [&](auto writer) {
    const auto write = [&](TwoGroups& two) {
      ends.apply(output.epilogue.activation, two);
      writer(two);
    };
    if constexpr (decltype(writer)::kBrief) {
#pragma unroll
      for (int first = 0; first < n; first += 2 * kGroupSums) {
        TwoGroups two;
#pragma unroll
        for (int i = 0; i < 2 * kGroupSums; ++i) two[i] = sums[first + i];
        write(two);
      }
    } else {
#pragma unroll 1
      for (int first = 0; first < n / kGroupSums; first += 2) {
        TwoGroups two;
        pick_groups(sums, first, two, staged);
        write(two);
      }
    }
  });
}

// ---- gated products -----------------------------------------------------------------------------

// Combines the gate and up warps of a block that have the same features and tokens: the up warp
// puts two groups at a time into its shared memory, the gate warp multiplies with them.
struct GatedMeeting {
  static constexpr int kBarrier = 6;
  bool up;      // this warp has up, not gate
  int threads;  // of both
  char* place;  // kStagedBytes of the up warp

  template <typename Writer>
  __device__ void write(const FeatureEnds& ends, Activation activation, TwoGroups& two,
                        Writer& writer) const {
    auto* mine = reinterpret_cast<float4*>(place) + threadIdx.x % 32;
    ends.apply(up ? Activation::none : activation, two);
    if (up) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        mine[j * 32] = {two[4 * j], two[4 * j + 1], two[4 * j + 2], two[4 * j + 3]};
      }
    }
    tile::barrier_sync(kBarrier, threads);
    if (!up) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float4 four = mine[j * 32];
        two[4 * j] *= four.x, two[4 * j + 1] *= four.y;
        two[4 * j + 2] *= four.z, two[4 * j + 3] *= four.w;
      }
      writer(two);
    }
    tile::barrier_sync(kBarrier, threads);  // the groups have been read
  }
};

template <int n>
__device__ inline void gated_epilogue(const PanelOutput& output, const FeatureEnds& ends,
                                      const WarpOutput& at, const float (&sums)[n], char* staged,
                                      const GatedMeeting& meeting) {
  with_writer(output, at, 8, staged, [&](auto writer) {
#pragma unroll 1
    for (int first = 0; first < n / kGroupSums; first += 2) {
      TwoGroups two;
      pick_groups(sums, first, two, staged);
      meeting.write(ends, output.epilogue.activation, two, writer);
    }
  });
}

}  // namespace tessera::cuda
