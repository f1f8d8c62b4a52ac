// One warp for each pair of slabs of a tile. It decodes as for the tensor cores (fragments.cuh): a
// lane has 16 neighbours of two features. Then it multiplies by the feature's scale and rounds to
// T.
#include "cuda/linear/layout/decode_tiles.h"

#include "cuda/linear/layout/fragments.cuh"
#include "cuda/linear/layout/scales.cuh"
#include "cuda/linear/layout/tile_layout.h"
#include "cuda/runtime/dynamic_shared.cuh"
#include "cuda/runtime/launch.h"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

struct DecodeArgs {
  const uint4* codes;
  TileScales scales;
  const float* row_scales;
  int tiles, pairs;
  std::int64_t n, k;
};

// Two numbers in T times the scale, by way of f32.
template <typename T>
__device__ Halves scaled(Halves two, float scale) {
  T low, high;
  low.bits = static_cast<std::uint16_t>(two);
  high.bits = static_cast<std::uint16_t>(two >> 16);
  return halves_of<T>(to_f32(low) * scale, to_f32(high) * scale);
}

// One side of a lane's fragments: 16 neighbours of a row, as two vectors.
struct Sixteen {
  uint4 low, high;
};

template <typename T>
__device__ Sixteen side_of(const Fragments& a, int side, float scale) {
  Halves halves[8];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    halves[2 * j] = scaled<T>(a[j][side], scale);
    halves[2 * j + 1] = scaled<T>(a[j][side + 2], scale);
  }
  return {{halves[0], halves[1], halves[2], halves[3]},
          {halves[4], halves[5], halves[6], halves[7]}};
}

__device__ uint4 from_neighbour(const uint4& vector) {
  constexpr unsigned kAll = 0xffffffffu;
  return {__shfl_xor_sync(kAll, vector.x, 1), __shfl_xor_sync(kAll, vector.y, 1),
          __shfl_xor_sync(kAll, vector.z, 1), __shfl_xor_sync(kAll, vector.w, 1)};
}

// For rows of whole 16-byte vectors: the stores of two neighbouring lanes fill 32 bytes, the
// smallest unit of memory. First the even lane's numbers, then the odd lane's.
template <typename T>
__device__ void store_vectors(const DecodeArgs& args, std::int64_t row, int k,
                              const Sixteen& values, T* out) {
  const bool odd = threadIdx.x % 2 != 0;
  const uint4 got = from_neighbour(odd ? values.low : values.high);
  const uint4 first = odd ? got : values.low, second = odd ? values.high : got;
  const int at = odd ? k - 8 : k;
  if (row >= args.n) return;
  T* to = out + row * args.k + at;
  if (at < args.k) *reinterpret_cast<uint4*>(to) = first;
  if (at + 16 < args.k) *reinterpret_cast<uint4*>(to + 16) = second;
}

// The same for any row.
template <typename T>
__device__ void store_row(const DecodeArgs& args, std::int64_t row, int k, const Sixteen& values,
                          T* out) {
  if (row >= args.n) return;
  T* to = out + row * args.k + k;
  const Halves halves[8] = {values.low.x,  values.low.y,  values.low.z,  values.low.w,
                            values.high.x, values.high.y, values.high.z, values.high.w};
#pragma unroll
  for (int e = 0; e < 16; ++e) {
    if (k + e < args.k) {
      to[e].bits = static_cast<std::uint16_t>(halves[e / 2] >> (e % 2 * 16));
    }
  }
}

template <Format F, ScaleMode S, bool Z, typename T>
__global__ void __launch_bounds__(kThreads) decode_pairs(DecodeArgs args, bool vectors, T* out) {
  constexpr int kWords = TileFormat<F, T>::kWords, kVectors = kWords / 4;
  Halves* nf4_table = dynamic_shared<Halves>();
  if constexpr (F == Format::nf4) {
    fill_nf4_table<T>(nf4_table);
    __syncthreads();
  }
  const int lane = threadIdx.x % 32;
  for (int at = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32);
       at < args.tiles * args.pairs; at += static_cast<int>(gridDim.x) * kWarps) {
    std::uint32_t words[2][kWords];
#pragma unroll
    for (int i = 0; i < 2 * kVectors; ++i) {
      const uint4* codes = args.codes + std::int64_t{at} * (64 * kVectors) + 32 * i + lane;
      store_words(__ldcs(codes), words[i / kVectors] + i % kVectors * 4);
    }
    RawScales raw{};
    load_scales<F, S, Z>(args.scales, at, lane, raw);
    const int tile = at / args.pairs, row = tile * kTileHeight + lane / 4;
    const float row_scales[2] = {args.row_scales[row], args.row_scales[row + 8]};
    RowState rows = no_rows<F, T>(nf4_table, lane);
    start_tile<F, S, Z, T>(args.scales, args.row_scales + tile * kTileHeight, tile, lane, rows);
#pragma unroll
    for (int slab = 0; slab < 2; ++slab) {
      Fragments a;
      decode_words<F, S, Z, T>(words[slab], raw, slab, rows, a);
      if constexpr (S != ScaleMode::none) scale_fragments<F, T>(raw, slab, rows.inverse, a);
      const int k = (at - tile * args.pairs) * kPair + slab * kSlab + lane % 4 * 16;
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const float scale = TileFormat<F, T>::kGain * row_scales[side];
        const Sixteen values = side_of<T>(a, side, scale);
        if (vectors) {
          store_vectors(args, row + 8 * side, k, values, out);
        } else {
          store_row(args, row + 8 * side, k, values, out);
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
  const bool vectors = args.k % 8 == 0 && reinterpret_cast<std::uintptr_t>(out) % 16 == 0;
  const bool zeros = args.scales.zeros != nullptr;
  with_tile_kind(weight.format, scale_mode(weight), zeros, [&]<Format F, ScaleMode S, bool Z>() {
    if constexpr (F != Format::dense) {
      launch(decode_pairs<F, S, Z, T>, grid, args, vectors, out);
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
                        .n = weight.out_features,
                        .k = weight.in_features};
  const Launch launch(ctx, "decode_tiles");
  if (out.dtype == DType::f16) {
    decode_as(launch, weight, args, out.ptr<Half>());
  } else {
    decode_as(launch, weight, args, out.ptr<BFloat16>());
  }
}

}  // namespace tessera::cuda
