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
    RowState rows = no_rows<F, T>(nf4_table, lane);
    start_tile<F, S, Z, T>(args.scales, args.row_scales + tile * kTileHeight,
                           static_cast<int>(tile), lane, rows);
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
      Fragments a;
      decode_words<F, S, Z, T>(words, raw, slab, rows, a);
      if constexpr (S != ScaleMode::none) scale_fragments<F, T>(raw, slab, rows.inverse, a);
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

template <typename T>
void decode_as(const Launch& launch, const Weight& weight, const DecodeArgs& args, T* out) {
  const std::int64_t pairs = static_cast<std::int64_t>(args.tiles) * args.pairs;
  const Grid grid{.blocks = (pairs + kWarps - 1) / kWarps,
                  .threads = kThreads,
                  .shared_bytes = weight.format == Format::nf4 ? kNf4TableBytes : 0};
  const bool vectors = args.columns % 8 == 0 && reinterpret_cast<std::uintptr_t>(out) % 16 == 0;
  with_tile_kind(weight.format, scale_mode(weight), [&](auto kind) {
    using Kind = decltype(kind);
    if constexpr (Kind::kFormat != Format::dense) {
      if constexpr (Kind::kTakesZeros) {
        if (args.scales.zeros) {
          return launch(decode_pairs<Kind::kFormat, Kind::kScales, true, T>, grid, args, vectors,
                        out);
        }
      }
      launch(decode_pairs<Kind::kFormat, Kind::kScales, false, T>, grid, args, vectors, out);
    }
  });
}

}  // namespace

void decode_tiles(Context& ctx, const Weight& weight, const Tensor& out) {
  const DecodeArgs args{.codes = weight.data.ptr<const uint4>(),
                        .scales = tile_scales(weight),
                        .row_scales = weight.row_scales.ptr<const float>(),
                        .tiles = static_cast<int>(weight.data.shape[0]),
                        .pairs = pairs_of(weight),
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
