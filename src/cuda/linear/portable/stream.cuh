// cuda.stream: linear() of a few tokens (M from 1 to 16). The weights stream from memory through
// the tensor cores once, and nothing must delay them.
//
// Each multiprocessor has one block, which takes a run of tiles (16 output features,
// tile_layout.h). Its warps divide the pairs of slabs (128 deep along K) of all these tiles evenly,
// in one long row:
//
//   tile 0                tile 1                tile 2
//   |p0 p1 p2 .... p31|p0 p1 .......... p31|p0 ............ p31|
//   [ warp 0    ][ warp 1    ][ warp 2    ] ...   [ warp 15    ]
//
// With gated_linear(), half of the warps take the gate, half the up matrix. A warp loads the codes
// of kAhead pairs into registers while it works on one pair. It decodes (fragments.cuh), then runs
// four mma.sync for each slab with the activations, which are in shared memory. The 16 features of
// a tile are the rows of A, tokens are the columns of B (stream_tokens.cuh; kTokens: 8 or 16). A
// single token can use the tensor cores better (stream_one_token.cuh; kTokens: 1).
//
// At the end of a tile, or of a warp's share, the sums go to a slot of shared memory. Slot w + v
// belongs to warp w and tile v: the next step is either the next tile or the next warp, so no two
// share a slot. At the end the slots of a tile are added in the order of warps, the same every
// time, and the epilogue is applied.
//
// Activations that do not fit into shared memory come in chunks along K: all of the above runs for
// one chunk, then for the next, and the sums of both are added.
//
// The kernel overlaps with the one before it: the first weights are loaded before that one has
// ended, if they are packed or constant. Other weights are only prefetched into the L2 cache,
// because the earlier kernel may write them. Reading a layer's weights takes 3 to 30 us, so the
// time before the first and after the last of them matters: divisors are constants, and global
// memory is read at the start rather than at the end.
//
// The technique: fragments and mma.sync are step 5 of examples/learn (docs/LEARN.md).
#pragma once

#include "cuda/linear/epilogue.cuh"
#include "cuda/linear/layout/fragments.cuh"
#include "cuda/linear/layout/scales.cuh"
#include "cuda/linear/layout/tile_layout.h"
#include "cuda/linear/matrix.h"
#include "cuda/linear/portable/slab.cuh"
#include "cuda/linear/portable/stream_one_token.cuh"
#include "cuda/linear/portable/stream_slots.cuh"
#include "cuda/linear/portable/stream_tokens.cuh"
#include "cuda/runtime/dynamic_shared.cuh"
#include "cuda/tile/cp_async.cuh"
#include "cuda/tile/grid_dependency.cuh"

namespace tessera::cuda {

inline constexpr unsigned kStreamWarpsLog2 = 4;
inline constexpr int kStreamWarps = 1 << kStreamWarpsLog2;
inline constexpr int kStreamThreads = kStreamWarps * 32;  // of each multiprocessor's one block

// One of the two matrices of gated_linear(), or the only one.
struct StreamWeight {
  const void* codes = nullptr;
  std::int64_t stride = 0;  // of a dense weight's rows, which are read in place
  TileScales scales{};
  const float* row_scales = nullptr;
};

struct StreamArgs {
  StreamWeight weights[2];
  int matrices;                    // 1, or 2: gate and up
  bool constant;                   // dense weights that no earlier kernel writes
  int block_tiles, longer_blocks;  // tiles of a block; the first blocks have one more
  int pairs;                       // of slabs, along K
  int chunk_pairs;                 // of which activations are in shared memory together
  MatrixRows x;                    // [m, k]
  int k, m, m_log2;                // rounded up
  bool x_aligned;                  // 16 bytes at a time
  bool one_token;                  // run by the kernel for one token
  Epilogue<MatrixRows> epilogue;
  std::int64_t n;
};

// The kernel for up to 8 tokens has all of K at once, which saves some arithmetic.
constexpr bool stream_in_chunks(int tokens) { return tokens > 8; }

// ---- loading ------------------------------------------------------------------------------------

// Where a lane finds vector i of pair number `at` of the weight, counted through all tiles.
template <Format F, typename T>
__device__ inline const uint4* vector_of_pair(const StreamArgs& args, const StreamWeight& weight,
                                              int at, int lane, int i) {
  constexpr int kVectors = TileFormat<F, T>::kWords / 4;  // of a slab
  if constexpr (F == Format::dense) {  // in place: two vectors of row g, two of row g + 8
    const int tile = at / args.pairs, slab = i / kVectors, side = i % kVectors / 2;
    const std::int64_t row =
        min(std::int64_t{tile} * kTileHeight + lane / 4 + side * 8, args.n - 1);
    const int k = at % args.pairs * kPair + slab * kSlab + lane % 4 * 16 + i % 2 * 8;
    return reinterpret_cast<const uint4*>(static_cast<const T*>(weight.codes) +
                                          row * weight.stride + k);
  } else {
    return static_cast<const uint4*>(weight.codes) + std::int64_t{at} * (64 * kVectors) + lane +
           32 * i;
  }
}

// Weights are read once, so they bypass the L1 cache.
template <Format F, ScaleMode S, bool Z, typename T>
__device__ inline void load_pair(const StreamArgs& args, const StreamWeight& weight, int at,
                                 int lane, SlabPair<TileFormat<F, T>::kWords>& to) {
  constexpr int kVectors = TileFormat<F, T>::kWords / 4;
#pragma unroll
  for (int i = 0; i < 2 * kVectors; ++i) {
    store_words(__ldcs(vector_of_pair<F, T>(args, weight, at, lane, i)),
                to.words[i / kVectors] + i % kVectors * 4);
  }
  load_scales<F, S, Z>(weight.scales, at, lane, to.scales);
}

// Fetches a dense pair into the L2 cache. Two vectors of a lane are adjacent.
template <typename T>
__device__ inline void prefetch_pair(const StreamArgs& args, const StreamWeight& weight, int at,
                                     int lane) {
#pragma unroll
  for (int i = 0; i < 2 * TileFormat<Format::dense, T>::kWords / 4; i += 2) {
    prefetch(vector_of_pair<Format::dense, T>(args, weight, at, lane, i));
  }
}

// The place of a warp's next load. It goes through the chunk's pairs of a tile, then those of the
// next tile; without chunks, through all pairs in order.
template <bool kChunks>
struct StreamCursor {
  int at;    // counted through all tiles
  int left;  // of this tile

  __device__ void advance(int depth, int pairs) {
    ++at;
    if constexpr (kChunks) {
      if (--left == 0) at += pairs - depth, left = depth;
    }
  }
};

// ---- activations --------------------------------------------------------------------------------

// Starts the copies of the activations of `depth` pairs, from `first_pair` on. wait_for_copies<0>()
// waits for them.
template <typename T>
__device__ void stage_activations(const StreamArgs& args, int first_pair, int depth, T* shared) {
  constexpr int kVector = 16 / sizeof(T);
  const int first = first_pair * kPair, left = args.k - first, padded = depth * kPair;
  for (int m = 0; m < args.m; ++m) {
    const T* from = args.x.row<const T>(m) + first;
    T* to = shared + m * x_pitch(depth);
    if (args.x_aligned) {
      for (int k = threadIdx.x * kVector; k < padded; k += kStreamThreads * kVector) {
        copy_async(to + k, from + k, k < left);
      }
    } else {
      for (int k = threadIdx.x; k < padded; k += kStreamThreads) {
        to[k] = k < left ? from[k] : T{};
      }
    }
  }
  close_copy_group();
}

// Loads one token, as stream_one_token.cuh expects it. Returns whether it is scaled.
template <Format F, typename T>
__device__ inline bool stage_token(const StreamArgs& args, T* shared) {
  using Row = StreamOne<F, T>;
  const T* from = args.x.row<const T>(0);
  bool scaled = Row::kScales;
  while (__syncthreads_or(Row::stage(from, args.k, args.x_aligned, args.pairs, scaled, shared)) !=
             0 &&
         scaled) {
    scaled = false;
  }
  return scaled;
}

// ---- shared memory ------------------------------------------------------------------------------

// The layout, in this order. [matrices]: gate and up.
template <typename T>
struct StreamPlaces {
  T* x;               // [m, x_pitch], or one token (stream_one_token.cuh)
  float* slots;       // [matrices][tiles + warps of a matrix][slot]
  float* totals;      // [matrices][tiles][slot], of earlier chunks, if there are chunks
  float* row_scales;  // [matrices][tiles * 16]
  float* bias;        // [matrices][tiles * 16]
  SlotRange* ranges;  // [tiles]
  Halves* nf4_table;

  __device__ StreamPlaces(const StreamArgs& args, int x_bytes, int slot)
      : x(dynamic_shared<T>()),
        slots(reinterpret_cast<float*>(reinterpret_cast<char*>(x) + x_bytes)) {
    const int tiles = (args.block_tiles + (args.longer_blocks > 0)) * args.matrices;
    totals = slots + (tiles + kStreamWarps) * slot;
    row_scales = totals + (args.chunk_pairs < args.pairs ? tiles * slot : 0);
    bias = row_scales + tiles * kTileHeight;
    ranges = reinterpret_cast<SlotRange*>(bias + tiles * kTileHeight);
    nf4_table = reinterpret_cast<Halves*>(ranges + tiles);
  }
};

// The end of the kernel needs a row scale and a bias of each feature. They are fetched at the
// start, by one thread for each feature (plan_stream() ensures that there are enough threads).
template <typename T>
struct StreamEnds {
  const StreamArgs& args;
  const StreamPlaces<T>& shared;
  int first_tile, features;

  __device__ std::int64_t n() const { return std::int64_t{first_tile} * kTileHeight + threadIdx.x; }
  __device__ bool mine() const { return static_cast<int>(threadIdx.x) < features; }
  __device__ const AnyFloats& bias_of(int matrix) const {
    return matrix == 0 ? args.epilogue.bias : args.epilogue.up_bias;
  }

  // Called before earlier kernels have ended. Biases are prefetched into the L2 cache, if that
  // leaves enough registers.
  template <Format F, bool kFetchBiases>
  __device__ void start() const {
    if (!mine()) return;
    for (int matrix = 0; matrix < args.matrices; ++matrix) {
      if constexpr (F != Format::dense) {
        const StreamWeight& weight = matrix == 0 ? args.weights[0] : args.weights[1];
        shared.row_scales[matrix * features + threadIdx.x] = weight.row_scales[n()];
      }
      const AnyFloats& bias = bias_of(matrix);
      if (kFetchBiases && bias.given() && n() < args.n) {
        prefetch(static_cast<const char*>(bias.data) + n() * size_of(bias.dtype));
      }
    }
  }
  // Called once earlier kernels have ended: one of them may have written the bias.
  __device__ float load_bias(int matrix) const {
    const AnyFloats& bias = bias_of(matrix);
    return mine() && n() < args.n && bias.given() ? bias[n()] : 0.f;
  }
  __device__ void put_bias(int matrix, float bias) const {
    if (mine() && matrix < args.matrices) shared.bias[matrix * features + threadIdx.x] = bias;
  }
};

// ---- the kernel ---------------------------------------------------------------------------------

template <Format F, ScaleMode S, bool Z, typename T, int kTokens>
__global__ void __launch_bounds__(kStreamThreads, 1) stream_kernel(StreamArgs args) {
  using Tiles = TileFormat<F, T>;
  constexpr bool kOneToken = kTokens == 1, kDense = F == Format::dense;
  constexpr int kSlot = slot_size(kTokens);
  // 32 to 64 KiB in flight, in as many registers as there are.
  constexpr int kAhead = Tiles::kWords > 4                             ? 2
                         : kOneToken || (Tiles::kE2m1 && kTokens == 8) ? 4
                                                                       : 3;
  constexpr bool kChunks = stream_in_chunks(kTokens);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int block = static_cast<int>(blockIdx.x);
  const int first_tile = block * args.block_tiles + min(block, args.longer_blocks);
  const int tiles = args.block_tiles + (block < args.longer_blocks);
  const int features = tiles * kTileHeight;
  const unsigned warps_log2 = args.matrices == 2 ? kStreamWarpsLog2 - 1 : kStreamWarpsLog2;
  const int matrix = warp >> warps_log2, my_warp = warp & ((1 << warps_log2) - 1);
  const StreamWeight weight = matrix == 0 ? args.weights[0] : args.weights[1];
  const int matrix_slots = (tiles + (1 << warps_log2)) * kSlot;
  const int x_bytes =
      kOneToken ? one_token_bytes(args.pairs) : args.m * x_pitch(args.chunk_pairs) * 2;
  const StreamPlaces<T> shared(args, x_bytes, kSlot);
  const StreamEnds<T> ends{args, shared, first_tile, features};

  const int chunk_pairs = kChunks ? args.chunk_pairs : args.pairs;
  for (int first_pair = 0; first_pair < args.pairs; first_pair += chunk_pairs) {
    const int depth = min(chunk_pairs, args.pairs - first_pair);
    const Shares shares{.pairs = static_cast<unsigned>(tiles * depth),
                        .tiles = static_cast<unsigned>(tiles),
                        .warps_log2 = warps_log2};
    const int begin = shares.first(my_warp), end = shares.first(my_warp + 1);
    int tile = shares.first_tile(my_warp, depth);
    int left = (tile + 1) * depth - begin;  // pairs of the tile

    // The first weights are requested before anything else.
    StreamCursor<kChunks> next{.at = (first_tile + tile) * args.pairs + first_pair + depth - left,
                               .left = left};
    SlabPair<Tiles::kWords> ring[kAhead];
    const auto load_first = [&] {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (begin + i < end) load_pair<F, S, Z, T>(args, weight, next.at, lane, ring[i]);
        next.advance(depth, args.pairs);
      }
    };
    const bool loads_early = !kDense || args.constant;
    if (loads_early) {
      load_first();
    } else if constexpr (kDense) {
      static_assert(!kChunks);  // so pairs are consecutive
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (begin + i < end) prefetch_pair<T>(args, weight, next.at + i, lane);
      }
    }
    if (thread < tiles) shared.ranges[thread] = slots_of_tile(shares, thread, depth);
    if (first_pair == 0) {
      let_next_kernel_start();
      ends.template start<F, !kChunks>();
      if constexpr (F == Format::nf4) fill_nf4_table<T>(shared.nf4_table);
      wait_for_earlier_kernels();
    }
    bool scaled = false;
    if constexpr (kOneToken) {
      const float bias = ends.load_bias(0), up_bias = ends.load_bias(1);  // in flight beside x
      scaled = stage_token<F>(args, shared.x);
      ends.put_bias(0, bias);
      ends.put_bias(1, up_bias);
    } else {
      stage_activations(args, first_pair, depth, shared.x);
      if (!loads_early) load_first();
      for (int i = 0; first_pair == 0 && i < args.matrices; ++i) {
        ends.put_bias(i, ends.load_bias(i));
      }
      wait_for_copies<0>();
      __syncthreads();
    }

    auto sums = [&] {
      if constexpr (kOneToken) {
        return StreamOneSums<F, S, Z, T>(shared.x, args.pairs, scaled, lane);
      } else {
        return StreamTokenSums<F, S, Z, T, kTokens>(shared.x, args.m, x_pitch(depth), lane);
      }
    }();
    int k = (depth - left) * kPair;
    float* slot = shared.slots + matrix * matrix_slots + (my_warp + tile) * kSlot;
    RowState rows = no_rows<F, T>(shared.nf4_table, lane);
    const auto start_rows = [&] {
      start_tile<F, S, Z, T>(weight.scales,
                             shared.row_scales + matrix * features + tile * kTileHeight,
                             first_tile + tile, lane, rows);
    };
    if (begin < end) start_rows();
    for (int at = begin; at < end; at += kAhead) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (at + i >= end) break;
        sums.multiply(ring[i], k, rows, [&] {
          // Only the loads are predicated. With a branch here, the compiler would copy the loaded
          // values, and so wait for them.
          if (at + i + kAhead < end) load_pair<F, S, Z, T>(args, weight, next.at, lane, ring[i]);
          next.advance(depth, args.pairs);
        });
        k += kPair;
        const bool tile_ends = --left == 0, share_ends = at + i + 1 == end;
        if (static_cast<int>(tile_ends) | static_cast<int>(share_ends)) {  // one branch
          sums.put(slot, lane);
          slot += kSlot;
          k = 0;
          left = depth;
          ++tile;
          if (at + i + 1 < end) start_rows();
        }
      }
    }
    __syncthreads();

    // One thread for each tile, token (their number rounded up to a power of two) and feature.
    const bool last = first_pair + depth == args.pairs;
    const int log2 = args.m_log2;
    for (int i = thread; i < features << log2; i += kStreamThreads) {
      const int row = i % kTileHeight, m = (i / kTileHeight) & ((1 << log2) - 1);
      const int v = i / kTileHeight >> log2, feature = v * kTileHeight + row;
      const std::int64_t n = std::int64_t{first_tile} * kTileHeight + feature;
      if (m >= args.m || n >= args.n) continue;
      const SlotRange range = shared.ranges[v];
      const auto product = [&](int of) {
        const float* from = shared.slots + of * matrix_slots + range.first * kSlot;
        float sum = 0;
#pragma unroll 1  // a short end of the kernel, in instructions too
        for (int s = 0; s < range.count; ++s) sum += from[s * kSlot + m * kSlotPitch + row];
        if (chunk_pairs < args.pairs) {
          float& total = shared.totals[(of * tiles + v) * kSlot + m * kSlotPitch + row];
          if (first_pair > 0) sum += total;
          total = sum;
        }
        if constexpr (F != Format::dense) {
          const float row_scale = shared.row_scales[of * features + feature];
          sum = kOneToken ? StreamOne<F, T>::in_full(sum, scaled) * row_scale
                          : sum * (Tiles::kGain * row_scale);
        }
        return sum + shared.bias[of * features + feature];
      };
      float value = product(0);
      if (args.epilogue.activation != Activation::none) {
        value = activate_apart(args.epilogue.activation, value);
      }
      if (args.matrices == 2) value *= product(1);
      if (last) args.epilogue.store(value, m, n);
    }
    if (!last) __syncthreads();  // the next chunk has other ranges
  }
}

}  // namespace tessera::cuda
