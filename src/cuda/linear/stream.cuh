// linear() of a few rows (1 to 16) of activations: weights stream from memory through the tensor
// cores once, and nothing waits but for them.
//
// A block on each multiprocessor takes a run of tiles (16 rows of W, tile_layout.h), and its warps
// share the pairs of slabs (128 columns) of all of them evenly, in one long row:
//
//   tile 0                tile 1                tile 2
//   |p0 p1 p2 .... p31|p0 p1 .......... p31|p0 ............ p31|
//   [ warp 0    ][ warp 1    ][ warp 2    ] ...   [ warp 15    ]
//
// Of gated_linear()'s two weights, half of the warps take one, half the other. A warp has the codes
// of kAhead pairs on their way into registers while it works on one: decode (fragments.cuh), then
// four mma.sync a slab with the activations, which lie in shared memory. Weights are the 16 rows of
// A, so that one row of activations and eight cost the same (kColumns: 8 or 16 of them). Where a
// tile ends, or a warp's share, the sums go to a slot of shared memory. Slot w + v is that of warp
// w and tile v: one step on is either the next tile or the next warp, so no two meet. In the end
// the slots of a tile are added up in the order of warps, the same each time, and the epilogue is
// applied.
//
// The kernel overlaps with the one ahead of it: the first weights are loaded before that has ended.
#pragma once

#include "cuda/dynamic_shared.cuh"
#include "cuda/linear/epilogue.cuh"
#include "cuda/linear/fragments.cuh"
#include "cuda/linear/matrix.h"
#include "cuda/linear/scales.cuh"
#include "cuda/linear/stream.h"
#include "cuda/linear/tile_layout.h"
#include "cuda/tile/grid_dependency.cuh"
#include "cuda/tile/mma.cuh"

namespace tessera::cuda {

inline constexpr int kStreamWarps = kStreamThreads / 32;

// One of the two matrices of gated_linear(), or the only one.
struct StreamWeight {
  const void* codes = nullptr;
  std::int64_t stride = 0;  // of a dense weight's rows, which are read where they are
  TileScales scales{};
  const float* row_scales = nullptr;
};

struct StreamArgs {
  StreamWeight weights[2];
  int parts;         // 1, or 2: gate and up
  int tiles, pairs;  // pairs of slabs in a row
  MatrixRows x;      // [.., columns]
  int columns;
  bool x_aligned;  // 16 bytes at a time
  Finish<MatrixRows> finish;
  std::int64_t out_features;
  std::int64_t first_row = 0;
  int rows = 0;
};

// ---- loading ------------------------------------------------------------------------------------

template <int kWords>
struct SlabPair {
  std::uint32_t words[2][kWords];
  RawScales scales;
};

// Pair number `at` of the weight, counted through all tiles. Weights are read once: they go past
// the first cache.
template <Format F, ScaleMode S, bool Z, typename T>
__device__ inline void load_pair(const StreamArgs& args, const StreamWeight& weight, int at,
                                 int lane, SlabPair<TileFormat<F, T>::kWords>& to) {
  constexpr int kVectors = TileFormat<F, T>::kWords / 4;
#pragma unroll
  for (int i = 0; i < 2 * kVectors; ++i) {
    const uint4* codes;
    if constexpr (F == Format::dense) {  // where they are: two vectors of row g, two of row g + 8
      const int tile = at / args.pairs, slab = i / kVectors, side = i % kVectors / 2;
      const std::int64_t row =
          min(std::int64_t{tile} * kTileHeight + lane / 4 + side * 8, args.out_features - 1);
      const int column = at % args.pairs * kPair + slab * kSlab + lane % 4 * 16 + i % 2 * 8;
      codes = reinterpret_cast<const uint4*>(static_cast<const T*>(weight.codes) +
                                             row * weight.stride + column);
    } else {
      codes = static_cast<const uint4*>(weight.codes) + std::int64_t{at} * (64 * kVectors) + lane +
              32 * i;
    }
    store_words(__ldcs(codes), to.words[i / kVectors] + i % kVectors * 4);
  }
  load_scales<F, S, Z>(weight.scales, at, lane, to.scales);
}

// ---- activations --------------------------------------------------------------------------------

// Rows in shared memory, 16 bytes apart beyond their length: then the eight rows of a fragment lie
// in different banks.
__device__ inline int x_pitch(int pairs) { return pairs * kPair + 8; }  // elements

template <typename T>
__device__ void stage_activations(const StreamArgs& args, T* shared) {
  const int columns = args.columns, padded = args.pairs * kPair;
  if (args.x_aligned) {
    constexpr int kVector = 16 / sizeof(T);
    const int vectors = padded / kVector;  // of a row
#pragma unroll 4                           // so that loads do not wait for each other
    for (int i = threadIdx.x; i < args.rows * vectors; i += kStreamThreads) {
      const int m = i / vectors, k = i % vectors * kVector;
      const T* from = args.x.row<const T>(args.first_row + m) + k;
      *reinterpret_cast<uint4*>(shared + m * x_pitch(args.pairs) + k) =
          k < columns ? *reinterpret_cast<const uint4*>(from) : uint4{};
    }
  } else {
    for (int i = threadIdx.x; i < args.rows * padded; i += kStreamThreads) {
      const int m = i / padded, k = i % padded;
      const T* from = args.x.row<const T>(args.first_row + m) + k;
      shared[m * x_pitch(args.pairs) + k] = k < columns ? *from : T{};
    }
  }
}

// ---- a slab -------------------------------------------------------------------------------------

// Decoded: the codes' registers are free for the next load.
template <ScaleMode S>
struct Decoded {
  Fragments a;
  float scales[2];  // of ScaleMode::sums
};

template <Format F, ScaleMode S, bool Z, typename T>
__device__ inline void decode_slab(const SlabPair<TileFormat<F, T>::kWords>& pair, int slab,
                                   RowState& rows, Decoded<S>& to) {
  decode_words<F, S, Z, T>(pair.words[slab], pair.scales, slab, rows, to.a);
  if constexpr (S == ScaleMode::fragments) {
    scale_fragments<F, T>(pair.scales, slab, rows.inverse, to.a);
  } else if constexpr (S == ScaleMode::sums) {
    scale_values<F>(pair.scales, slab, to.scales);
#pragma unroll
    for (int side = 0; side < 2; ++side) to.scales[side] *= rows.inverse[side];
  }
}

// x: this lane's 16 activations of the slab, of which each step takes four.
template <ScaleMode S, typename T>
__device__ inline void multiply_slab(const Decoded<S>& weights, const T* x, float (&sums)[4]) {
  const uint4 low = *reinterpret_cast<const uint4*>(x);
  const uint4 high = *reinterpret_cast<const uint4*>(x + 8);
  const Pair b[4][2] = {{low.x, low.y}, {low.z, low.w}, {high.x, high.y}, {high.z, high.w}};
  if constexpr (S == ScaleMode::sums) {
    float slab_sums[4] = {};
#pragma unroll
    for (int j = 0; j < 4; ++j) mma_16x8x16(slab_sums, weights.a[j], b[j], T{});
#pragma unroll
    for (int r = 0; r < 4; ++r) sums[r] += weights.scales[r / 2] * slab_sums[r];
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) mma_16x8x16(sums, weights.a[j], b[j], T{});
  }
}

// What the epilogue of row n of W reads that no kernel writes.
__device__ inline void prefetch_of_row(const StreamArgs& args, std::int64_t n) {
  if (n >= args.out_features) return;
  for (int part = 0; part < args.parts; ++part) {
    const float* row_scales = args.weights[part].row_scales;
    if (row_scales) prefetch(row_scales + n);
  }
  if (args.finish.bias.given()) {
    prefetch(static_cast<const char*>(args.finish.bias.data) + n * size_of(args.finish.bias.dtype));
  }
}

// ---- slots --------------------------------------------------------------------------------------

// [16 rows of W][rows of x] f32
constexpr int slot_size(int columns) { return kTileHeight * columns; }

// Of both slabs of the pairs, and of each eight rows of x.
template <int kColumns>
__device__ inline void put_sums(float* slot, int lane, float (&sums)[2][kColumns / 8][4]) {
#pragma unroll
  for (int c = 0; c < kColumns / 8; ++c) {
    const int at = lane / 4 * kColumns + c * 8 + lane % 4 * 2;
    float(&low)[4] = sums[0][c], (&high)[4] = sums[1][c];
    *reinterpret_cast<float2*>(slot + at) = {low[0] + high[0], low[1] + high[1]};
    *reinterpret_cast<float2*>(slot + at + 8 * kColumns) = {low[2] + high[2], low[3] + high[3]};
#pragma unroll
    for (int r = 0; r < 4; ++r) low[r] = high[r] = 0;
  }
}

// How the warps that work on a weight share its pairs: warp w starts at pair w * pairs / warps.
struct Shares {
  unsigned pairs, warps;

  __device__ int first(unsigned warp) const { return static_cast<int>(warp * pairs / warps); }
  __device__ int warp_of(unsigned pair) const {
    return static_cast<int>(((pair + 1) * warps - 1) / pairs);
  }
};

// Slot w + tile holds what warp w of them has of the tile.
__device__ inline float sum_slots(const float* slots, int slot, const Shares& shares, int tile,
                                  int pairs_of_tile, int at) {
  const int last = shares.warp_of((tile + 1) * pairs_of_tile - 1);
  float sum = 0;
  for (int w = shares.warp_of(tile * pairs_of_tile); w <= last; ++w) {
    if (shares.pairs < shares.warps && shares.first(w) == shares.first(w + 1))
      continue;  // no share
    sum += slots[(w + tile) * slot + at];
  }
  return sum;
}

// ---- the kernel ---------------------------------------------------------------------------------

template <Format F, ScaleMode S, bool Z, typename T, int kColumns>
__global__ void __launch_bounds__(kStreamThreads, 1) stream_rows(StreamArgs args) {
  using Tiles = TileFormat<F, T>;
  constexpr int kSlot = slot_size(kColumns), kTiles = kColumns / 8;
  // 32 to 64 KiB on their way, in as many registers as there are.
  constexpr int kAhead = Tiles::kWords > 4 ? 2 : Tiles::kE2m1 && kTiles == 1 ? 4 : 3;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int first_tile = static_cast<int>(std::int64_t{blockIdx.x} * args.tiles / gridDim.x);
  const int end_tile = static_cast<int>((blockIdx.x + std::int64_t{1}) * args.tiles / gridDim.x);
  const int tiles = end_tile - first_tile, features = tiles * kTileHeight;
  const Shares shares{.pairs = static_cast<unsigned>(tiles * args.pairs),
                      .warps = static_cast<unsigned>(kStreamWarps / args.parts)};
  const int part = warp / static_cast<int>(shares.warps);
  const int warp_of_part = warp % static_cast<int>(shares.warps);
  const StreamWeight weight = part == 0 ? args.weights[0] : args.weights[1];

  T* x = dynamic_shared<T>();
  float* slots = reinterpret_cast<float*>(x + args.rows * x_pitch(args.pairs));
  const int slots_of_part = tiles + static_cast<int>(shares.warps);
  Pair* table = reinterpret_cast<Pair*>(slots + slots_of_part * args.parts * kSlot);

  // The first weights are on their way before anything else.
  const int block_start = first_tile * args.pairs;
  const int begin = block_start + shares.first(warp_of_part);
  const int end = block_start + shares.first(warp_of_part + 1);
  SlabPair<Tiles::kWords> ring[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (begin + i < end) load_pair<F, S, Z, T>(args, weight, begin + i, lane, ring[i]);
  }
  let_next_kernel_start();
  if (thread < features) prefetch_of_row(args, first_tile * kTileHeight + thread);
  if constexpr (F == Format::nf4) fill_nf4_table<T>(table);
  wait_for_earlier_kernels();
  stage_activations(args, x);
  __syncthreads();

  // Lanes of rows that are not there work on a row that is; nobody reads their sums.
  const T* rows_x[kTiles];
#pragma unroll
  for (int c = 0; c < kTiles; ++c) {
    rows_x[c] = x + (lane / 4 + 8 * c) % args.rows * x_pitch(args.pairs) + lane % 4 * 16;
  }
  int tile = begin / args.pairs;
  int left = (tile + 1) * args.pairs - begin;  // pairs of the tile
  int column = (args.pairs - left) * kPair;
  float* slot = slots + (part * slots_of_part + warp_of_part + tile - first_tile) * kSlot;
  RowState rows = no_rows<F, T>(table, lane);
  const auto start_rows = [&] {
    start_tile<F, S, Z, T>(weight.scales, weight.row_scales, tile, lane, rows);
  };
  if (begin < end) start_rows();
  float sums[2][kTiles][4] = {};
  for (int at = begin; at < end; at += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (at + i >= end) break;
      Decoded<S> decoded[2];
      decode_slab<F, S, Z, T>(ring[i], 0, rows, decoded[0]);
#pragma unroll
      for (int c = 0; c < kTiles; ++c) multiply_slab(decoded[0], rows_x[c] + column, sums[0][c]);
      decode_slab<F, S, Z, T>(ring[i], 1, rows, decoded[1]);
      if (at + i + kAhead < end) {
        load_pair<F, S, Z, T>(args, weight, at + i + kAhead, lane, ring[i]);
      }
#pragma unroll
      for (int c = 0; c < kTiles; ++c) {
        multiply_slab(decoded[1], rows_x[c] + column + kSlab, sums[1][c]);
      }
      column += kPair;
      if (--left == 0 || at + i + 1 == end) {
        put_sums<kColumns>(slot, lane, sums);
        slot += kSlot;
        column = 0;
        left = args.pairs;
        ++tile;
        if (at + i + 1 < end) start_rows();
      }
    }
  }
  __syncthreads();

  for (int i = thread; i < features * args.rows; i += kStreamThreads) {
    const int m = i / features, row = i % features;
    const std::int64_t n = std::int64_t{first_tile} * kTileHeight + row;
    if (n >= args.out_features) continue;
    const auto product = [&](int of) {
      const float sum = sum_slots(slots + of * slots_of_part * kSlot, kSlot, shares,
                                  row / kTileHeight, args.pairs, row % kTileHeight * kColumns + m);
      if constexpr (F == Format::dense) return sum;
      return sum * Tiles::kGain * args.weights[of].row_scales[n];
    };
    const float gate = product(0);
    const float value =
        args.parts == 2 ? args.finish.gated(gate, product(1), n) : args.finish.value(gate, n);
    args.finish.store(value, args.first_row + m, n);
  }
}

}  // namespace tessera::cuda
