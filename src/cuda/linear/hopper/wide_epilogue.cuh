// How wide.cuh ends a tile whose output is 16-bit numbers in rows of 16-byte vectors. (Any other
// output: panel_epilogue.cuh.) A warpgroup has 64 features of all tokens, in wgmma's order:
// features by tokens. In the output the features of a token are adjacent, and a line of memory, 128
// bytes, holds 64 of them. So the sums of some tokens at a time are rounded and transposed in
// shared memory. Then a thread takes eight features of a token, and eight threads store a line:
//
//            64 features
//   token 0 |v0 v1 v2 v3 v4 v5 v6 v7|   a line of the output
//   token 1 |v8 v9 ..               |
//   ...                                 vectors of 16 bytes, swizzled
//
// The activation and the residual are applied to the rounded sums, as in the pass over products
// that are made apart (epilogue_pass.cu).
//
// In a gated product, the first warpgroup has 64 features of gate and the second the same features
// of up. They are combined here, in shared memory, and the warpgroups divide the lines.
#pragma once

#include "cuda/linear/epilogue.cuh"
#include "cuda/linear/hopper/panel_epilogue.cuh"
#include "cuda/tile/hopper/warpgroup.cuh"
#include "cuda/tile/swizzle.cuh"
#include "cuda/tile/transpose.cuh"

namespace tessera::cuda {

// Eight 16-bit numbers, with arithmetic in f32.
template <typename T>
struct EightHalves {
  float x[8];

  __device__ explicit EightHalves(const uint4& vector) {
    const Halves twos[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      x[i] = to_f32(T{static_cast<std::uint16_t>(twos[i / 2] >> (i % 2 * 16))});
    }
  }
  __device__ uint4 rounded() const {
    return {halves_of<T>(x[0], x[1]), halves_of<T>(x[2], x[3]), halves_of<T>(x[4], x[5]),
            halves_of<T>(x[6], x[7])};
  }
};

// Computes act(x), or act(x) * up, of some of a thread's vectors in shared memory, in place.
struct StagedVectors {
  char* first;
  int step, count;  // bytes from one to the next
  int up;           // bytes from a vector to its factor in up; 0: none
};

template <Activation activation, typename T>
__device__ inline void activate_staged(const StagedVectors& vectors) {
#pragma unroll 1
  for (int i = 0; i < vectors.count; ++i) {
    char* at = vectors.first + i * vectors.step;
    EightHalves<T> eight(*reinterpret_cast<const uint4*>(at));
#pragma unroll
    for (float& x : eight.x) x = activate(activation, x);
    if (vectors.up != 0) {
      const EightHalves<T> up(*reinterpret_cast<const uint4*>(at + vectors.up));
#pragma unroll
      for (int e = 0; e < 8; ++e) eight.x[e] *= up.x[e];
    }
    *reinterpret_cast<uint4*>(at) = eight.rounded();
  }
}

// Out of line, like activate_apart().
template <typename T>
__device__ __noinline__ void activate_staged_apart(Activation activation,
                                                   const StagedVectors vectors) {
  switch (activation) {
    case Activation::none:
      return activate_staged<Activation::none, T>(vectors);
    case Activation::relu:
      return activate_staged<Activation::relu, T>(vectors);
    case Activation::gelu:
      return activate_staged<Activation::gelu, T>(vectors);
    case Activation::gelu_tanh:
      return activate_staged<Activation::gelu_tanh, T>(vectors);
    case Activation::silu:
      return activate_staged<Activation::silu, T>(vectors);
  }
}

// For a warpgroup, or for both warpgroups of a gated product. T: the output's type.
template <typename T, int kTokens, int kPieceTokens, bool kGated>
struct LinesWriter {
  static constexpr int kThreads = kGated ? 2 * tile::kWarpgroup : tile::kWarpgroup;
  static constexpr int kPieceBytes = kPieceTokens * 128;  // of a warpgroup
  // Of a thread in a piece: the number of vectors, and tokens and bytes from one to the next.
  static constexpr int kVectors = kPieceBytes / 16 / kThreads, kStep = kThreads / 8;
  static constexpr int kStepBytes = kStep * 128;
  static_assert(kStep % 8 == 0);  // so that all of them have the same swizzle

  char *to, *from;  // where a lane puts its sums, and where a thread reads
  std::uint16_t* out;
  const std::uint16_t* residual;
  int left;  // tokens from the thread's first one on; none if there are no such features

  // memory: the block's. first_feature: the lines' first.
  __device__ LinesWriter(const PanelOutput& output, char* memory, std::int64_t first_token,
                         std::int64_t first_feature) {
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
    char* own = memory + thread / tile::kWarpgroup * kPieceBytes;
    to = own + tile::swizzled(lane / 16 * 8 + lane % 8, warp % 4 * 2 + lane / 8 % 2);
    const int token = thread % kThreads / 8;
    from = (kGated ? memory : own) + tile::swizzled(token, thread % 8);
    const std::int64_t row = first_token + token, feature = first_feature + thread % 8 * 8;
    out = output.epilogue.out.row<std::uint16_t>(row) + feature;
    residual = output.epilogue.residual.row<const std::uint16_t>(row) + feature;
    left = feature < output.n
               ? static_cast<int>(min(output.m - first_token, std::int64_t{kTokens})) - token
               : 0;
  }

  __device__ static void meet() {
    // Barriers 1 and 2 belong to single warpgroups.
    tile::barrier_sync(kGated ? 3 : 1 + static_cast<int>(threadIdx.x) / tile::kWarpgroup, kThreads);
  }

  // Puts the rounded sums of a piece where the lines are assembled.
  template <int n>
  __device__ void put(const FeatureEnds& ends, const float (&sums)[n], int piece) const {
#pragma unroll
    for (int q = 0; q < kPieceTokens / 16; ++q) {
      Halves halves[4];
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const int at = piece * (kPieceTokens / 2) + q * 2 * kGroupSums + 2 * p;
        const int side = side_of(2 * p);
        halves[p] = halves_of<T>(sums[at] * ends.scales[side] + ends.biases[side],
                                 sums[at + 1] * ends.scales[side] + ends.biases[side]);
      }
      tile::store_transposed(to + q * 16 * 128, halves);
    }
  }

  // Stores the lines of an assembled piece, and advances to the next.
  __device__ void take(const Epilogue<MatrixRows>& epilogue) {
    if (kGated || epilogue.activation != Activation::none) {
      activate_staged_apart<T>(
          epilogue.activation,
          {.first = from, .step = kStepBytes, .count = kVectors, .up = kGated ? kPieceBytes : 0});
    }
    if (epilogue.has_residual) add_residual(epilogue);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (i * kStep < left) {
        *reinterpret_cast<uint4*>(out + i * kStep * epilogue.out.stride) =
            *reinterpret_cast<const uint4*>(from + i * kStepBytes);
      }
    }
    out += kPieceTokens * epilogue.out.stride;
    left -= kPieceTokens;
  }

  __device__ void add_residual(const Epilogue<MatrixRows>& epilogue) {
    uint4 added[kVectors] = {};
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (i * kStep < left) {
        added[i] = *reinterpret_cast<const uint4*>(residual + i * kStep * epilogue.residual.stride);
      }
    }
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      auto* at = reinterpret_cast<uint4*>(from + i * kStepBytes);
      EightHalves<T> sum(*at);
      const EightHalves<T> more(added[i]);
#pragma unroll
      for (int e = 0; e < 8; ++e) sum.x[e] += more.x[e];
      *at = sum.rounded();
    }
    residual += kPieceTokens * epilogue.residual.stride;
  }
};

template <typename T, int kPieceTokens, bool kGated, int n>
__device__ inline void lines_epilogue(const PanelOutput& output, const FeatureEnds& ends,
                                      std::int64_t first_token, std::int64_t first_feature,
                                      const float (&sums)[n], char* memory) {
  LinesWriter<T, 2 * n, kPieceTokens, kGated> writer(output, memory, first_token, first_feature);
#pragma unroll
  for (int piece = 0; piece < 2 * n / kPieceTokens; ++piece) {
    writer.put(ends, sums, piece);
    writer.meet();
    writer.take(output.epilogue);
    writer.meet();
  }
}

}  // namespace tessera::cuda
