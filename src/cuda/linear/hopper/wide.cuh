// cuda.wide: linear() of hundreds of tokens on Hopper. Weights are decoded into shared memory, and
// the tensor cores (wgmma) read both factors from there. So weights that are decoded once serve 256
// tokens, and the activations need no reordering.
//
// A block makes a tile of 128 features by 256 tokens at a time, 64 deep at each step:
//
//                      256 tokens
//                    +--------------------------+
//   x (shared)    K  |  slab: 64 x 256          |   by the copy engine, swizzled
//                    +--------------------------+
//        K: 64
//     +---------+    +--------------------------+
//     | 64      |    |  sums of warpgroup 0     |   128 registers of each thread
//     +---------+    +--------------------------+
//     | 64      |    |  sums of warpgroup 1     |
//     +---------+    +--------------------------+
//      W (shared),
//      decoded by warpgroup 2
//
// Three things run at the same time, each on its own slab: the copy engine (wide_load.cuh), a
// warpgroup that decodes (wide_decode.cuh), and two warpgroups that multiply. Up to kSlabs slabs
// are in flight. Each slab has a barrier for the arrival of x and weights, and another for the end
// of their use.
//
// Two blocks form a cluster, on the same tokens. Each loads half of x into both, because the L2
// cache cannot feed all of x to every block. Clusters divide tiles of 256 features as the blocks of
// panels.cuh do (panel_work.cuh). panel_epilogue.cuh describes the epilogue.
//
// The technique: warps that only load are step 7 of examples/learn, wgmma is step 8
// (docs/LEARN.md).
#pragma once

#include "cuda/linear/hopper/panel_epilogue.cuh"
#include "cuda/linear/hopper/panel_tile_loop.cuh"
#include "cuda/linear/hopper/wide_decode.cuh"
#include "cuda/linear/hopper/wide_epilogue.cuh"
#include "cuda/linear/hopper/wide_load.cuh"
#include "cuda/linear/hopper/wide_stage.cuh"
#include "cuda/tile/grid_dependency.cuh"
#include "cuda/tile/hopper/cluster.cuh"
#include "cuda/tile/hopper/mbarrier.cuh"
#include "cuda/tile/hopper/warpgroup.cuh"
#include "cuda/tile/hopper/wgmma.cuh"

namespace tessera::cuda {

template <Format F, ScaleMode S, bool Z, typename T>
struct WideMultiplier {
  using Stage = WideStage<F, S, Z, T>;
  using Wgmma = tile::Wgmma<kWideTokens>;
  using Element = std::conditional_t<std::is_same_v<T, Half>, __half, __nv_bfloat16>;
  using Sums = float[kWideTokens / 2];

  const PanelArgs& args;
  const char* slabs;
  WideBarriers<Stage> barriers;
  int lane, warp;
  tile::Ring<Stage::kSlabs> ring{};

  // The parts of the clusters' first blocks come first.
  __device__ PanelParts parts_of_block() const {
    const int before = wide_rank() * (static_cast<int>(gridDim.x) / kWideCluster);
    return {.sums = args.parts.sums +
                    std::int64_t{before} * (kWideTokens / 8 * kWideMultiplyWarps * 32),
            .flags = args.parts.flags + before * kWideMultiplyWarps};
  }

  // Signals all blocks that write into the place.
  __device__ void give_back(int place) const {
    if (lane < kWideCluster) tile::arrive_at(tile::shared_of(lane, &barriers.empty[place]));
  }

  // The descriptor of the first slab. Others add the distance in units of 16 bytes.
  __device__ std::uint64_t uniform(std::uint64_t descriptor) const {
    const auto low = static_cast<std::uint32_t>(descriptor);
    return (descriptor & 0xffffffff00000000u) | __shfl_sync(0xffffffffu, low, 0);
  }

  __device__ void multiply(int pairs, Sums& sums) {
    const int warpgroup = warp / 4;
    const std::uint64_t a0 =
        uniform(tile::depth_contiguous(slabs + Stage::kW + warpgroup * (64 * 128)));
    const std::uint64_t b0 = uniform(tile::depth_contiguous(slabs + Stage::kX));
    int before = -1;
#pragma unroll 1
    for (int slab = 0; slab < 2 * pairs; ++slab, ring.advance()) {
      // Uniform for the compiler, which descriptors must be.
      const int place = __shfl_sync(0xffffffffu, ring.place, 0);
      tile::wait(barriers.full[place], ring.parity);
      const std::uint64_t a = tile::moved(a0, place * Stage::kBytes),
                          b = tile::moved(b0, place * Stage::kBytes);
      tile::wgmma_fence();
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        Wgmma::template shared<Element, tile::BLayout::depth_contiguous>(
            sums, tile::moved(a, 32 * j), tile::moved(b, 32 * j), true);
      }
      tile::wgmma_commit();
      tile::wgmma_wait<1>();
      if (before >= 0) give_back(before);
      before = place;
    }
    tile::wgmma_wait<0>();
    give_back(before);
    tile::pin(sums);
  }

  __device__ void run(char* staged) {
    const bool up = is_up(args, warp);
    const auto block_feature = [&](const Segment& segment) {
      return std::int64_t{wide_first_tile(args, segment)} * kTileHeight;
    };
    const auto first_feature = [&](const Segment& segment) {
      return block_feature(segment) + (up ? warp - args.panel_tiles : warp) * kTileHeight;
    };
    tile_loop<kWideTokens, kWideMultiplyWarps>(
        args.work, parts_of_block(), wide_segments(args),
        [&](const Segment& segment) { prefetch_for_tile(args.output, first_feature(segment)); },
        [&](int first, int end, Sums& sums) { multiply(end - first, sums); },
        [&](const Segment& segment, const Sums& sums) {
          const std::int64_t token = wide_first_token(args, segment);
          const WarpOutput at(args.output, token, token + kWideTokens, first_feature(segment),
                              args.output.n);
          const FeatureEnds ends(up ? args.output.up_row_scales : args.output.row_scales,
                                 up ? args.output.epilogue.up_bias : args.output.epilogue.bias,
                                 TileFormat<F, T>::kGain, at);
          const std::int64_t block = block_feature(segment);
          if (args.gated()) {
            lines_epilogue<T, Stage::kPieceTokens, true>(args.output, ends, token, block, sums,
                                                         staged);
          } else if (args.output.lines) {
            lines_epilogue<T, Stage::kPieceTokens, false>(
                args.output, ends, token, block + warp / 4 * (4 * kTileHeight), sums, staged);
          } else {
            tile_epilogue(args.output, ends, at, sums, staged + warp * kStagedBytes);
          }
        });
  }
};

template <Format F, ScaleMode S, bool Z, typename T>
__global__ void __launch_bounds__(kWideThreads, 1)
    wide_kernel(const __grid_constant__ PanelArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Stage = WideStage<F, S, Z, T>;
  // Aligned as the tensor cores require. The address is known at compile time, unlike
  // dynamic_shared()'s.
  extern __shared__ __align__(1024) char slabs[];
  char* packed = slabs + Stage::kSlabs * Stage::kBytes;
  char* table = packed + Stage::kPackedPairs * Stage::kPackedBytes;
  char* staged = table + Stage::kTableBytes;
  const WideBarriers<Stage> barriers(
      reinterpret_cast<std::uint64_t*>(staged + Stage::kOutputBytes));
  if (threadIdx.x == 0) barriers.init();
  if constexpr (F == Format::nf4) fill_nf4_table<T>(reinterpret_cast<Halves*>(table));
  __syncthreads();
  tile::cluster_meet();
  let_next_kernel_start();

  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
  if (warp < kWideMultiplyWarps) {
    tile::take_registers<kWideMultiplyRegisters>();
    WideMultiplier<F, S, Z, T> multiplier{
        .args = args, .slabs = slabs, .barriers = barriers, .lane = lane, .warp = warp};
    multiplier.run(staged);
  } else {
    tile::give_up_registers<kWideDecodeRegisters>();
    WideDecoder<F, S, Z, T> decoder{.args = args,
                                    .slabs = slabs,
                                    .packed = packed,
                                    .barriers = barriers,
                                    .lane = lane,
                                    .warp = warp - kWideMultiplyWarps};
    decoder.run(reinterpret_cast<const Halves*>(table));
  }
  // A block must not end while another still writes into its memory.
  __syncwarp();
  tile::cluster_sync();
#endif
}

}  // namespace tessera::cuda
