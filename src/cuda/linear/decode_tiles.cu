// A warp for each pair of slabs of a tile: decoded as for the tensor cores (fragments.cuh), where a
// lane has 16 neighbours of two rows, then multiplied by the row's scale and rounded to T.
#include "cuda/linear/decode_tiles.h"

#include "cuda/dynamic_shared.cuh"
#include "cuda/launch.h"
#include "cuda/linear/fragments.cuh"
#include "cuda/linear/scales.cuh"
#include "cuda/linear/tile_layout.h"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

struct DecodeArgs {
  const uint4* codes;
  TileScales scales;
  const float* row_scales;
  int tiles, pairs;
  std::int64_t rows, columns;
};

// Of two numbers in T: their f32, times the scale.
template <typename T>
__device__ Pair scaled(Pair pair, float scale) {
  T low, high;
  low.bits = static_cast<std::uint16_t>(pair);
  high.bits = static_cast<std::uint16_t>(pair >> 16);
  return pair_of<T>(to_f32(low) * scale, to_f32(high) * scale);
}

// Lane t of a row: steps j of it are elements 4 j .. 4 j + 3, in registers side and side + 2 of A.
template <typename T>
__device__ void store_row(const DecodeArgs& args, std::int64_t row, std::int64_t column, int side,
                          const Fragments& a, float scale, T* out) {
  if (row >= args.rows) return;
  T* to = out + row * args.columns + column;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const Pair pair = scaled<T>(a[j][side + 2 * e], scale);
      const std::int64_t at = column + 4 * j + 2 * e;
      if (at < args.columns) to[4 * j + 2 * e].bits = static_cast<std::uint16_t>(pair);
      if (at + 1 < args.columns)
        to[4 * j + 2 * e + 1].bits = static_cast<std::uint16_t>(pair >> 16);
    }
  }
}

// The same where rows are whole vectors of 16 bytes.
template <typename T>
__device__ void store_vectors(const DecodeArgs& args, std::int64_t row, std::int64_t column,
                              int side, const Fragments& a, float scale, T* out) {
  if (row >= args.rows || column >= args.columns) return;
  auto* to = reinterpret_cast<uint4*>(out + row * args.columns + column);
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    if (column + 8 * part >= args.columns) return;
    const int j = 2 * part;
    to[part] = {scaled<T>(a[j][side], scale), scaled<T>(a[j][side + 2], scale),
                scaled<T>(a[j + 1][side], scale), scaled<T>(a[j + 1][side + 2], scale)};
  }
}

template <Format F, ScaleMode S, bool Z, typename T>
__global__ void __launch_bounds__(kThreads) decode_pairs(DecodeArgs args, bool vectors, T* out) {
  constexpr int kWords = TileFormat<F, T>::kWords, kVectors = kWords / 4;
  Pair* nf4_table = dynamic_shared<Pair>();
  if constexpr (F == Format::nf4) {
    fill_nf4_table<T>(nf4_table);
    __syncthreads();
  }
  const int lane = threadIdx.x % 32;
  const std::int64_t all = static_cast<std::int64_t>(args.tiles) * args.pairs;
  const std::int64_t step = std::int64_t{gridDim.x} * kWarps;
  for (std::int64_t at = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; at < all;
       at += step) {
    const std::int64_t tile = at / args.pairs, row = tile * kTileHeight + lane / 4;
    const float row_scales[2] = {args.row_scales[row], args.row_scales[row + 8]};
    float inverse[2] = {1, 1};
    DecodeState state{.nf4_table = nf4_table + lane};
    use_zeros<F, T>(F == Format::int4 ? kNoInt4Zeros : 0, state);
    if constexpr (S != ScaleMode::none && F != Format::nvfp4) {
      inverse[0] = inverse_power(row_scales[0]);
      inverse[1] = inverse_power(row_scales[1]);
    } else if constexpr (Z) {
      const auto* zeros = reinterpret_cast<const std::uint16_t*>(args.scales.zeros);
      use_zeros<F, T>(zeros[tile * 8 + lane / 4], state);
    }
    RawScales raw{};
    load_scales<F, S, Z>(args.scales, static_cast<int>(at), lane, raw);
#pragma unroll
    for (int slab = 0; slab < 2; ++slab) {
      std::uint32_t words[kWords];
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        store_words(__ldcs(args.codes + ((at * 2 + slab) * kVectors + i) * 32 + lane),
                    words + 4 * i);
      }
      if constexpr (Z && S != ScaleMode::none) use_zeros<F, T>(raw.zeros >> (16 * slab), state);
      Fragments a;
      TileFormat<F, T>::decode(words, state, a);
      if constexpr (S != ScaleMode::none) {
        Pair factors[2];
        scale_pairs<F, T>(raw, slab, inverse, factors);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
#pragma unroll
          for (int r = 0; r < 4; ++r) a[j][r] = multiply<T>(a[j][r], factors[r % 2]);
        }
      }
      const std::int64_t column = (at % args.pairs * 2 + slab) * kSlab + lane % 4 * 16;
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const float scale = TileFormat<F, T>::kGain * row_scales[side];
        if (vectors) {
          store_vectors(args, row + 8 * side, column, side, a, scale, out);
        } else {
          store_row(args, row + 8 * side, column, side, a, scale, out);
        }
      }
    }
  }
}

template <Format F, ScaleMode S, typename T>
void decode_with(const Launch& launch, const DecodeArgs& args, T* out) {
  const std::int64_t pairs = static_cast<std::int64_t>(args.tiles) * args.pairs;
  const Grid grid{.blocks = (pairs + kWarps - 1) / kWarps,
                  .threads = kThreads,
                  .shared_bytes = F == Format::nf4 ? kNf4TableBytes : 0};
  const bool vectors = args.columns % 8 == 0 && reinterpret_cast<std::uintptr_t>(out) % 16 == 0;
  if constexpr (F == Format::int4 || F == Format::int8) {
    if (args.scales.zeros) {
      return launch(decode_pairs<F, S, true, T>, grid, args, vectors, out);
    }
  }
  launch(decode_pairs<F, S, false, T>, grid, args, vectors, out);
}

template <typename T>
void decode_as(const Launch& launch, const Weight& weight, const DecodeArgs& args, T* out) {
  const ScaleMode mode = scale_mode(weight);
  switch (weight.format) {
    case Format::dense:
      return;
    case Format::nvfp4:
      return decode_with<Format::nvfp4, ScaleMode::fragments>(launch, args, out);
    case Format::mxfp4:
      return decode_with<Format::mxfp4, ScaleMode::fragments>(launch, args, out);
    case Format::nf4:
      return decode_with<Format::nf4, ScaleMode::sums>(launch, args, out);
    case Format::int4:
      if (mode == ScaleMode::none) {
        return decode_with<Format::int4, ScaleMode::none>(launch, args, out);
      }
      if (mode == ScaleMode::sums) {
        return decode_with<Format::int4, ScaleMode::sums>(launch, args, out);
      }
      return decode_with<Format::int4, ScaleMode::fragments>(launch, args, out);
    case Format::int8:
      if (mode == ScaleMode::none) {
        return decode_with<Format::int8, ScaleMode::none>(launch, args, out);
      }
      return decode_with<Format::int8, ScaleMode::sums>(launch, args, out);
    case Format::fp8:
      return decode_with<Format::fp8, ScaleMode::none>(launch, args, out);
  }
}

}  // namespace

void decode_tiles(Context& ctx, const Weight& weight, const Tensor& out) {
  const std::int64_t pair_bytes = kTileHeight * 2 * kSlab * info(weight.format).bits / 8;
  const DecodeArgs args{.codes = weight.data.ptr<const uint4>(),
                        .scales = tile_scales(weight),
                        .row_scales = weight.row_scales.ptr<const float>(),
                        .tiles = static_cast<int>(weight.data.shape[0]),
                        .pairs = static_cast<int>(weight.data.shape[1] / pair_bytes),
                        .rows = weight.out_features,
                        .columns = weight.in_features};
  const Launch launch(ctx, "decode_tiles");
  if (out.dtype == DType::f16) {
    decode_as(launch, weight, args, out.ptr<Half>());
  } else {
    decode_as(launch, weight, args, out.ptr<BFloat16>());
  }
}

}  // namespace tessera::cuda
