// cuda.panels: linear() of dozens to hundreds of tokens on Hopper. Weights are decoded in registers
// and go from there to the tensor cores (wgmma), which read the activations from shared memory.
//
// A block makes a tile of up to 256 features by kTokens tokens at a time. The weights are A, 64
// features to a warpgroup, decoded by its lanes into registers; x is B:
//
//                     kTokens tokens (32 to 128)
//                   +--------------------------+
//   x (shared)   K  |  slab: 64 deep, swizzled |
//                   +--------------------------+
//        K
//     +--------+    +--------------------------+
//     | 64     |    |  sums of warpgroup 0     |   its warp w: tile w of the weight, 16 features
//     +--------+    +--------------------------+
//     | 64     |    |  sums of warpgroup 1     |
//     +--------+    +--------------------------+
//        ...           ... up to warpgroup 3
//      W, decoded
//
// While the products of some warpgroups run, others decode. With 128 tokens each warpgroup also
// decodes its own next step.
//
// Four more warps run ahead (panel_load.cuh). For each pair of slabs they load the codes and scales
// of the block's tiles and the activations into one of kStages stages. The computing warps release
// a stage when their products with it have ended. The host plans how blocks divide the work
// (panel_plan.h). panel_epilogue.cuh describes the epilogue.
//
// The technique: warps that only load are step 7 of examples/learn, wgmma is step 8
// (docs/LEARN.md).
#pragma once

#include "cuda/linear/hopper/panel_epilogue.cuh"
#include "cuda/linear/hopper/panel_load.cuh"
#include "cuda/linear/hopper/panel_split.cuh"
#include "cuda/linear/hopper/panel_stage.cuh"
#include "cuda/linear/hopper/panel_tile_loop.cuh"
#include "cuda/linear/hopper/panel_work.cuh"
#include "cuda/linear/layout/fragments.cuh"
#include "cuda/linear/layout/scaled_words.cuh"
#include "cuda/linear/layout/scales.cuh"
#include "cuda/linear/layout/staged_tile.cuh"
#include "cuda/runtime/dynamic_shared.cuh"
#include "cuda/tile/grid_dependency.cuh"
#include "cuda/tile/hopper/mbarrier.cuh"
#include "cuda/tile/hopper/warpgroup.cuh"
#include "cuda/tile/hopper/wgmma.cuh"

namespace tessera::cuda {

// ---- the warpgroups -----------------------------------------------------------------------------

// The place of one warp's share in a stage, and its progress through the stages.
template <Format F, ScaleMode S, bool Z, typename T, int kTokens, bool kGated>
struct PanelWarp {
  using Stage = PanelStage<F, S, Z, T, kTokens, kGated>;
  using Wgmma = tile::Wgmma<kTokens>;
  using Element = std::conditional_t<std::is_same_v<T, Half>, __half, __nv_bfloat16>;
  static constexpr int kWords = TileFormat<F, T>::kWords;
  // Steps of the tensor cores, 16 deep, that are decoded and started together, and how many such
  // groups there are registers for. Measured: with up to 64 tokens one group at a time is best; the
  // other warpgroups fill the time.
  static constexpr int kSteps = kTokens > 64 ? 1 : kTokens > 32 ? 2 : 4;
  static constexpr int kAhead = kTokens > 64 ? 2 : 1;

  const PanelArgs& args;
  const char* stages;
  PanelBarriers barriers;
  int lane, warp;
  tile::Ring<Stage::kStages> ring{};

  __device__ void load_slab(const char* stage, int slab, std::uint32_t (&words)[kWords]) const {
    load_staged_words(stage + Stage::kCodes + warp * Stage::kCodeBytes, slab, lane, words);
  }

  __device__ void load_raw(const char* stage, RawScales& raw) const {
    const bool up = is_up();
    const int place = up ? warp - args.panel_tiles : warp;
    const char* scales = stage + Stage::kScales + (up ? Stage::kUpScales : 0);
    const char* zeros = stage + Stage::kZerosAt + (up ? Stage::kUpZeros : 0);
    load_staged_scales<F, S, Z>(scales + place * args.boxes.scale_bytes,
                                zeros + place * args.boxes.zero_bytes, args.boxes.block_shift, lane,
                                raw);
  }

  // Decodes steps [first, first + kSteps) of a slab; the compiler drops the work for other steps.
  // Block scales are always applied to the fragments here.
  __device__ void decode(std::uint32_t (&words)[kWords], const RawScales& raw, int slab, int first,
                         RowState& rows, Halves (&a)[kSteps][4]) const {
    // A copy of the words, lest the compiler decode all steps at once and keep them.
#pragma unroll
    for (std::uint32_t& word : words) asm volatile("" : "+r"(word));
    Fragments all;
    decode_scaled<F, S, Z, T>(words, raw, slab, rows, all);
#pragma unroll
    for (int j = 0; j < kSteps; ++j) {
#pragma unroll
      for (int r = 0; r < 4; ++r) a[j][r] = all[first + j][r];
    }
  }

  __device__ void start_products(const char* stage, int slab, int first,
                                 const Halves (&a)[kSteps][4], float (&sums)[kTokens / 2]) const {
    const std::uint64_t b = tile::depth_contiguous(stage + Stage::kX + slab * (Stage::kXBytes / 2));
    tile::wgmma_fence();
#pragma unroll
    for (int j = 0; j < kSteps; ++j) {
      Wgmma::template registers<Element, tile::BLayout::depth_contiguous>(
          sums, a[j], tile::moved(b, 32 * (first + j)));
    }
    tile::wgmma_commit();
  }

  __device__ void give_back(int place) const {
    if (lane == 0) tile::arrive(barriers.empty[place]);
  }

  __device__ void multiply(int first_pair, int end, RowState& rows, float (&sums)[kTokens / 2]) {
    constexpr int kGroups = 8 / kSteps;  // of a pair
    Halves a[kAhead][kSteps][4];
    int before = -1;  // the place before this one
    for (int pair = first_pair; pair < end; ++pair, ring.advance()) {
      // Uniform for the compiler, which descriptors must be.
      const int place = __shfl_sync(0xffffffffu, ring.place, 0);
      const char* stage = stages + place * Stage::kBytes;
      tile::wait(barriers.full[place], ring.parity);
      RawScales raw{};
      std::uint32_t words[2][kWords];
      load_raw(stage, raw);
      load_slab(stage, 0, words[0]);
      load_slab(stage, 1, words[1]);
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        const int slab = group * kSteps / 4, first = group * kSteps % 4;
        tile::wgmma_wait<kAhead - 1>();  // a[group % kAhead] is free
        if (group == kAhead - 1 && before >= 0) give_back(before);
        decode(words[slab], raw, slab, first, rows, a[group % kAhead]);
        start_products(stage, slab, first, a[group % kAhead], sums);
      }
      before = ring.place;
    }
    tile::wgmma_wait<0>();
    give_back(before);
    tile::pin(sums);
  }

  // In a gated product, the second half of the block's tiles is up's.
  __device__ bool is_up() const { return kGated && warp >= args.panel_tiles; }
  __device__ int tile_of_weight(const Segment& segment) const {
    return first_tile(args, segment) + (is_up() ? warp - args.panel_tiles : warp);
  }

  __device__ WarpOutput output_of(const Segment& segment) const {
    const std::int64_t token = std::int64_t{segment.tile % args.work.token_blocks} * kTokens;
    const std::int64_t end = first_tile(args, segment) + args.panel_tiles;
    return {args.output, token, token + kTokens,
            std::int64_t{tile_of_weight(segment)} * kTileHeight, end * kTileHeight};
  }
  __device__ FeatureEnds ends_of(const WarpOutput& at) const {
    const PanelOutput& output = args.output;
    const bool up = is_up();
    return {up ? output.up_row_scales : output.row_scales,
            up ? output.epilogue.up_bias : output.epilogue.bias, TileFormat<F, T>::kGain, at};
  }
  __device__ GatedMeeting meeting(char* staged) const {
    return {.up = is_up(),
            .threads = Stage::block_tiles(args) * 32,
            .place = staged + (is_up() ? 0 : args.panel_tiles * kStagedBytes)};
  }
  // Warps that only fill up a warpgroup write nothing.
  __device__ bool is_spare() const { return kGated && warp >= 2 * args.panel_tiles; }

  // The epilogue with the other blocks' sums of the same tile.
  __device__ void split_epilogue(const Segment& segment, const float (&sums)[kTokens / 2],
                                 char* staged) const {
    const int warps = panel_warps(Stage::block_tiles(args));
    WarpOutput at = output_of(segment);
    FeatureEnds ends = ends_of(at);
    const PanelSplit<kTokens> shared{
        .split = args.work.split,
        .rank = tile::cluster_rank(),
        .room = args.work.split_groups,
        .groups = (at.tokens + 7) / 8,
        .received = reinterpret_cast<float4*>(const_cast<char*>(stages)),
        .barriers = barriers.split};
    static_assert(Stage::kStages * Stage::kBytes >= PanelSplit<kTokens>::most_bytes());
    shared.meet(warps);
    shared.send(sums);
    ends.load();
    shared.receive();
    if (is_spare()) return;
    at.skip_tokens(8 * shared.rank);
    with_writer(args.output, at, 8 * shared.split, staged, [&](auto writer) {
#pragma unroll 1
      for (int group = 0; group < shared.count(); group += 2) {
        TwoGroups all;
        shared.add_up(group, all);
        if constexpr (kGated) {
          meeting(staged).write(ends, args.output.epilogue.activation, all, writer);
        } else {
          ends.apply(args.output.epilogue.activation, all);
          writer(all);
        }
      }
    });
  }

  __device__ void run(const Halves* nf4_table, char* staged) {
    RowState rows = no_rows<F, T>(nf4_table, lane);
    const auto start = [&](const Segment& segment) {
      const int tile = tile_of_weight(segment);
      // Tiles beyond the matrix repeat the last tile.
      const int last = min(tile, args.tiles - 1);
      const float* scales = is_up() ? args.output.up_row_scales : args.output.row_scales;
      start_tile<F, S, Z, T>({}, scales + last * kTileHeight, last, lane, rows);
      prefetch_for_tile(args.output, std::int64_t{tile} * kTileHeight);
    };
    tile_loop<kTokens, kPanelWarps>(
        args.work, args.parts, Segments(args.work), start,
        [&](int first, int end, float(&sums)[kTokens / 2]) { multiply(first, end, rows, sums); },
        [&](const Segment& segment, const float(&sums)[kTokens / 2]) {
          if (args.work.split > 0) return split_epilogue(segment, sums, staged);
          if (is_spare()) return;
          const WarpOutput at = output_of(segment);
          if constexpr (kGated) {
            gated_epilogue(args.output, ends_of(at), at, sums, staged, meeting(staged));
          } else {
            tile_epilogue(args.output, ends_of(at), at, sums, staged);
          }
        });
  }
};

template <Format F, ScaleMode S, bool Z, typename T, int kTokens, bool kGated>
__global__ void __launch_bounds__(kPanelThreads, 1)
    panels_kernel(const __grid_constant__ PanelArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Stage = PanelStage<F, S, Z, T, kTokens, kGated>;
  char* stages = dynamic_shared<char>();
  stages += (1024 - static_cast<std::uint32_t>(__cvta_generic_to_shared(stages)) % 1024) % 1024;
  char* besides = stages + Stage::kStages * Stage::kBytes;
  Halves* table = reinterpret_cast<Halves*>(besides);
  const PanelBarriers barriers(
      reinterpret_cast<std::uint64_t*>(besides + Stage::kTableBytes + Stage::kOutputBytes),
      Stage::kStages);
  const int warps = panel_warps(Stage::block_tiles(args));
  if (threadIdx.x == 0) {
    for (int i = 0; i < Stage::kStages; ++i) {
      tile::init_barrier(barriers.raw[i], 1);
      tile::init_barrier(barriers.full[i], panel_arrivals(args.x.boxed));
      tile::init_barrier(barriers.empty[i], static_cast<std::uint32_t>(warps));
    }
    for (int i = 0; i < kPanelWarps; ++i) tile::init_barrier(barriers.split[i], 1);
    tile::publish_barriers();
  }
  if constexpr (F == Format::nf4) fill_nf4_table<T>(table);
  __syncthreads();
  let_next_kernel_start();

  if (threadIdx.x >= kPanelWarps * 32) {
    tile::give_up_registers<kPanelLoadRegisters>();
    const int warp = static_cast<int>(threadIdx.x) / 32 - kPanelWarps;
    if (warp > 0 && args.x.boxed) {
      order_pairs<Stage>(args, stages, barriers, warp - 1);
    } else if (warp > 0) {
      copy_pairs<Stage>(args, stages, barriers, warp - 1);
    } else if (threadIdx.x % 32 == 0) {
      ask_for_pairs<Stage>(args, stages, barriers);
    }
  } else if (static_cast<int>(threadIdx.x) < warps * 32) {
    tile::take_registers<kPanelRegisters>();
    const int thread = static_cast<int>(threadIdx.x);
    PanelWarp<F, S, Z, T, kTokens, kGated> warp{.args = args,
                                                .stages = stages,
                                                .barriers = barriers,
                                                .lane = thread % 32,
                                                .warp = __shfl_sync(0xffffffffu, thread / 32, 0)};
    warp.run(table, besides + Stage::kTableBytes + warp.warp * kStagedBytes);
  }
#endif
}

}  // namespace tessera::cuda
