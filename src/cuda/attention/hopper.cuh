// Attention forward for Hopper (sm_90a).
//
//   warpgroup 0       fetches: tiles of q, k and v come by the copy engine, as soon as their place
//                     in shared memory is free
//   warpgroups 1 ..   compute, 64 query rows each:
//
//                 S = q k^T   (tensor cores, S in registers)
//                 P = 2^(scale S - largest), sums and largest of each row
//                 O = rescaled O + P v   (tensor cores, P from registers)
//
// Two overlaps keep the tensor cores busy. Within a warpgroup, the next tile's S is started before
// this tile's O, and the softmax of the next tile runs beside the latter. Among warpgroups, they
// take turns in starting products, so that one's softmax falls into the other's products.
//
// Blocks are as many as the GPU has processors, and stay: each takes one item of work after the
// other. While the last tile of an item is finished and stored, the first ones of the next are on
// their way.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/attention/hopper_call.h"
#include "cuda/attention/hopper_softmax.cuh"
#include "cuda/attention/hopper_work.cuh"
#include "cuda/tile/mbarrier.cuh"
#include "cuda/tile/quad.cuh"
#include "cuda/tile/tma.cuh"
#include "cuda/tile/warpgroup.cuh"
#include "cuda/tile/wgmma.cuh"

namespace tessera::cuda::hopper {

// T is __half or __nv_bfloat16.
template <typename T_, int dim, HopperTiles tiles>
struct Kernel {
  using T = T_;
  static constexpr HopperTiles kTiles = tiles;
  static constexpr int kDim = dim, kKeys = kTiles.keys, kStages = kTiles.stages;
  static constexpr int kWarpgroups = kTiles.warpgroups, kRows = 64 * kWarpgroups;
  static constexpr int kPanels = hopper_panels(dim);
  static constexpr int kThreads = tile::kWarpgroup * (1 + kWarpgroups);
  static constexpr int kQueryPanel = 64 * 128, kKeyPanel = kKeys * 128;  // bytes
  static constexpr int kQueryBytes = kPanels * kQueryPanel, kKeyBytes = kPanels * kKeyPanel;
  // The block starts with as many for each thread as 64 K allow, in steps of 8: 168 with three
  // warpgroups, 128 with four. The sum over warpgroups must not exceed that.
  static constexpr int kFetchRegisters = kWarpgroups == 2 ? 40 : 32;
  static constexpr int kComputeRegisters = kWarpgroups == 2 ? 232 : 160;
  static_assert(kFetchRegisters + kWarpgroups * kComputeRegisters <=
                (1 + kWarpgroups) * (65536 / kThreads / 8 * 8));
  static_assert(kWarpgroups == 2 || kWarpgroups == 3);

  struct Barriers {
    std::uint64_t q_full[kWarpgroups], q_free[kWarpgroups];
    std::uint64_t k_full[kStages], k_free[kStages], v_full[kStages], v_free[kStages];
    std::uint64_t item_full[2], item_free[2];
    int items[2];  // the work at hand, and the next
  };
  unsigned char *q, *k, *v;  // [warpgroups] and [stages] of [panels, rows, 128 bytes]
  Barriers* barriers;

  // `shared` is aligned to 1024 bytes, eight swizzled rows.
  __device__ explicit Kernel(unsigned char* shared) {
    q = shared;
    k = q + kWarpgroups * kQueryBytes;
    v = k + kStages * kKeyBytes;
    barriers = reinterpret_cast<Barriers*>(v + kStages * kKeyBytes);
  }

  __device__ void init() {
    if (threadIdx.x == 0) {
      for (int i = 0; i < kWarpgroups; ++i) {
        tile::init_barrier(barriers->q_full[i], 1);
        tile::init_barrier(barriers->q_free[i], 4);  // one arrival for each warp
      }
      for (int i = 0; i < kStages; ++i) {
        tile::init_barrier(barriers->k_full[i], 1);
        tile::init_barrier(barriers->v_full[i], 1);
        tile::init_barrier(barriers->k_free[i], 4 * kWarpgroups);
        tile::init_barrier(barriers->v_free[i], 4 * kWarpgroups);
      }
      for (int i = 0; i < 2; ++i) {
        tile::init_barrier(barriers->item_full[i], 1);
        tile::init_barrier(barriers->item_free[i], 4 * kWarpgroups);
      }
      tile::publish_barriers();
    }
    __syncthreads();
  }
};

// ---- fetching, by one thread
// ------------------------------------------------------------------------

template <typename K>
__device__ void fetch_rows(unsigned char* to, const CUtensorMap& map, int rows, int row, int head,
                           int batch, std::uint64_t& full) {
  tile::arrive_expecting(full, static_cast<std::uint32_t>(K::kPanels * rows * 128));
#pragma unroll
  for (int panel = 0; panel < K::kPanels; ++panel) {
    tile::load_box(to + panel * rows * 128, &map, {64 * panel, row, head, batch}, full);
  }
}

template <typename K>
__device__ void fetch(const HopperCall& call, K& block) {
  auto& bar = *block.barriers;
  tile::Ring<K::kStages> stage;
  std::uint32_t q_parity = 1;
  tile::Ring<2> slot;
  // Work is dealt out one by one, the longest first: whoever is done takes the next.
  for (int item = blockIdx.x; true; item = gridDim.x + atomicAdd(&call.counters[0], 1)) {
    tile::wait(bar.item_free[slot.place], slot.parity ^ 1);
    bar.items[slot.place] = item;
    tile::arrive(bar.item_full[slot.place]);
    slot.advance();
    if (item >= call.items) break;
    const Work work = find_work<K::kRows, K::kKeys>(call, item);
    const int tiles = work.tiles();
    const int kv_head = work.head / call.group;
    const auto fetch_keys = [&](int i) {
      const int row = work.tile(i) * K::kKeys;
      tile::wait(bar.k_free[stage.place], stage.parity ^ 1);
      fetch_rows<K>(block.k + stage.place * K::kKeyBytes, call.k, K::kKeys, row, kv_head,
                    work.batch, bar.k_full[stage.place]);
    };
    const auto fetch_values = [&](int i) {
      const int row = work.tile(i) * K::kKeys;
      tile::wait(bar.v_free[stage.place], stage.parity ^ 1);
      fetch_rows<K>(block.v + stage.place * K::kKeyBytes, call.v, K::kKeys, row, kv_head,
                    work.batch, bar.v_full[stage.place]);
    };
    for (int i = 0; i < tiles; ++i) {
      fetch_keys(i);
      if (i == 0) {
        for (int w = 0; w < K::kWarpgroups; ++w) {
          tile::wait(bar.q_free[w], q_parity);
          fetch_rows<K>(block.q + w * K::kQueryBytes, call.q, 64, work.row + 64 * w, work.head,
                        work.batch, bar.q_full[w]);
        }
        q_parity ^= 1;
      }
      fetch_values(i);
      stage.advance();
    }
  }
  // The last block leaves the counters as it found them.
  if (atomicAdd(&call.counters[1], 1) == static_cast<int>(gridDim.x) - 1) {
    call.counters[0] = call.counters[1] = 0;
  }
}

// ---- computing, by a warpgroup
// ------------------------------------------------------------------------

// s = q k^T: [64, keys] from [64, dim] and [keys, dim].
template <typename K>
__device__ void start_scores(float (&s)[K::kKeys / 2], const unsigned char* q,
                             const unsigned char* k) {
  const std::uint64_t a = tile::depth_contiguous(q), b = tile::depth_contiguous(k);
#pragma unroll
  for (int step = 0; step < K::kDim / 16; ++step) {
    const int panel = step / 4, within = step % 4 * 32;
    tile::Wgmma<K::kKeys>::template shared<typename K::T, tile::BLayout::depth_contiguous>(
        s, tile::moved(a, panel * K::kQueryPanel + within),
        tile::moved(b, panel * K::kKeyPanel + within), step > 0);
  }
  tile::wgmma_commit();
}

// o += p v: [64, dim] from [64, keys] and [keys, dim].
template <typename K>
__device__ void start_output(float (&o)[K::kDim / 2], const std::uint32_t (&p)[K::kKeys / 16][4],
                             const unsigned char* v) {
  const std::uint64_t b = tile::columns_contiguous(v, K::kKeyPanel);
#pragma unroll
  for (int step = 0; step < K::kKeys / 16; ++step) {
    tile::Wgmma<K::kDim>::template registers<typename K::T, tile::BLayout::columns_contiguous>(
        o, p[step], tile::moved(b, step * 2048));
  }
  tile::wgmma_commit();
}

// Turns at the tensor cores: barrier 1 + w calls warpgroup w.
template <typename K>
__device__ void await_turn(int w) {
  if constexpr (K::kTiles.take_turns) tile::barrier_sync(1 + w, 2 * tile::kWarpgroup);
}
template <typename K>
__device__ void pass_turn(int w) {
  if constexpr (K::kTiles.take_turns) {
    tile::barrier_arrive(1 + (w + 1) % K::kWarpgroups, 2 * tile::kWarpgroup);
  }
}

// Rows of o to memory: each lane has two elements here and there of two rows; the four lanes of a
// quad exchange them so that each has 16 bytes in one place.
template <typename K>
__device__ void store(const HopperCall& call, const Work& work, int w, float (&o)[K::kDim / 2],
                      const Softmax& softmax) {
  using T = typename K::T;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = work.row + 64 * w + 16 * warp + lane / 4 + 8 * r;
    const bool inside = row < call.n_q;
    const float sum = tile::quad_sum(softmax.sum[r]);
    const float factor = sum == 0.f ? 0.f : 1.f / sum;
    T* to = static_cast<T*>(call.out) + work.batch * call.out_batch_stride +
            row * call.out_row_stride + work.head * call.out_head_stride;
#pragma unroll
    for (int j = 0; j < K::kDim / 8; j += 4) {
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        words[i] = 0;
        if (j + i < K::kDim / 8) {
          const float* pair = &o[4 * (j + i) + 2 * r];
          words[i] = pack<T>(pair[0] * factor, pair[1] * factor);
        }
      }
      const uint4 part = tile::quad_transpose(words[0], words[1], words[2], words[3]);
      const int column = 8 * (j + lane % 4);
      if (inside && column < call.dim) *reinterpret_cast<uint4*>(to + column) = part;
    }
    if (call.lse != nullptr && inside && lane % 4 == 0) {
      constexpr float kLn2 = 0.6931471805599453f;
      call.lse[work.batch * call.lse_batch_stride + work.head * call.lse_head_stride +
               row * call.lse_row_stride] =
          sum == 0.f ? -INFINITY : (softmax.largest[r] * call.exponent_scale + log2f(sum)) * kLn2;
    }
  }
}

// Frees a place in shared memory, once a warp's products have read it.
__device__ inline void release(std::uint64_t& free) {
  if (threadIdx.x % 32 == 0) tile::arrive(free);
}

template <typename K>
__device__ int take_item(K& block, tile::Ring<2>& slot) {
  auto& bar = *block.barriers;
  tile::wait(bar.item_full[slot.place], slot.parity);
  // From one lane to all: so the compiler knows that a warp does not diverge over it.
  const int item = __shfl_sync(0xffffffffu, bar.items[slot.place], 0);
  release(bar.item_free[slot.place]);
  slot.advance();
  return item;
}

template <typename K>
__device__ void compute(const HopperCall& call, K& block, int w) {
  auto& bar = *block.barriers;
  const unsigned char* q = block.q + w * K::kQueryBytes;
  tile::Ring<K::kStages> stage;
  std::uint32_t q_parity = 0;
  if (w == 0 && K::kTiles.take_turns) tile::barrier_arrive(1, 2 * tile::kWarpgroup);

  tile::Ring<2> slot;
  while (true) {
    const int item = take_item(block, slot);
    if (item >= call.items) break;
    const Work work = find_work<K::kRows, K::kKeys>(call, item);
    const Band band(call, work.row + 64 * w);
    const int tiles = work.tiles();
    float o[K::kDim / 2];
#pragma unroll
    for (float& x : o) x = 0.f;
    Softmax softmax;
    if (tiles == 0) {
      store<K>(call, work, w, o, softmax);
      continue;
    }
    std::uint32_t p[K::kKeys / 16][4];
    float rescale[2];

    tile::wait(bar.q_full[w], q_parity);
    q_parity ^= 1;
    {  // the first tile's weights
      float s[K::kKeys / 2];
      tile::wait(bar.k_full[stage.place], stage.parity);
      tile::wgmma_fence();
      start_scores<K>(s, q, block.k + stage.place * K::kKeyBytes);
      tile::wgmma_wait<0>();
      tile::pin(s);
      release(bar.k_free[stage.place]);
      if (tiles == 1) release(bar.q_free[w]);
      band.hide<K::kKeys>(s, work.tile(0));
      softmax.weigh(s, call.exponent_scale, rescale);
      to_operand<typename K::T>(s, p);
    }
#pragma unroll 1
    for (int i = 1; i < tiles; ++i) {
      float s[K::kKeys / 2];
      const tile::Ring<K::kStages> last = stage;
      stage.advance();
      tile::wait(bar.k_full[stage.place], stage.parity);
      await_turn<K>(w);
      tile::pin(o);
      tile::wgmma_fence();
      start_scores<K>(s, q, block.k + stage.place * K::kKeyBytes);
      tile::wait(bar.v_full[last.place], last.parity);
      tile::wgmma_fence();
      start_output<K>(o, p, block.v + last.place * K::kKeyBytes);
      pass_turn<K>(w);

      tile::wgmma_wait<1>();
      tile::pin(s);
      release(bar.k_free[stage.place]);
      if (i == tiles - 1) release(bar.q_free[w]);
      band.hide<K::kKeys>(s, work.tile(i));
      softmax.weigh(s, call.exponent_scale, rescale);
      tile::finish_first(softmax.sum[0] + softmax.sum[1], block.q);

      tile::wgmma_wait<0>();
      tile::pin(o);
      release(bar.v_free[last.place]);
      to_operand<typename K::T>(s, p);
#pragma unroll
      for (int j = 0; j < K::kDim / 2; ++j) o[j] *= rescale[j / 2 % 2];
    }
    tile::wait(bar.v_full[stage.place], stage.parity);
    tile::pin(o);
    tile::wgmma_fence();
    start_output<K>(o, p, block.v + stage.place * K::kKeyBytes);
    tile::wgmma_wait<0>();
    tile::pin(o);
    release(bar.v_free[stage.place]);
    stage.advance();
    store<K>(call, work, w, o, softmax);
  }
}

template <typename K>
__global__ void __launch_bounds__(K::kThreads, 1) attend(const __grid_constant__ HopperCall call) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  K block(shared);
  block.init();
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / tile::kWarpgroup, 0);
  if (warpgroup == 0) {
    tile::give_up_registers<K::kFetchRegisters>();
    if (threadIdx.x == 0) fetch<K>(call, block);
  } else {
    tile::take_registers<K::kComputeRegisters>();
    compute<K>(call, block, warpgroup - 1);
  }
#else
  __trap();  // the host launches this on Hopper alone
#endif
}

}  // namespace tessera::cuda::hopper
