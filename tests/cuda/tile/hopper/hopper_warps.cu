#include "cuda/tile/hopper/hopper_warps.h"

#include <type_traits>

#include "core/half.h"
#include "cuda/runtime/launch.h"
#include "cuda/tile/hopper/cluster.cuh"
#include "cuda/tile/hopper/mbarrier.cuh"
#include "cuda/tile/hopper/tma.cuh"
#include "cuda/tile/hopper/warpgroup.cuh"
#include "cuda/tile/hopper/wgmma.cuh"
#include "cuda/tile/ldmatrix.cuh"
#include "cuda/tile/swizzle.cuh"
#include "cuda/tile/transpose.cuh"

namespace tessera::test {
namespace {

namespace tile = cuda::tile;

__global__ void transpose(const std::uint16_t* in, std::uint16_t* stored,
                          std::uint16_t* store_transposed, std::uint16_t* transposed) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __shared__ __align__(16) std::uint16_t rows[3][4 * 64];
  const int lane = threadIdx.x;
  std::uint32_t pairs[4], transposed_pairs[4];
  for (int m = 0; m < 4; ++m) {
    const std::uint16_t* from = in + 64 * m + 8 * (lane / 4) + 2 * (lane % 4);
    pairs[m] = std::uint32_t{from[1]} << 16 | from[0];
    transposed_pairs[m] = tile::transpose_8x8(pairs[m]);
  }
  tile::store_8x8(rows[0] + 8 * lane, pairs);
  tile::store_transposed(rows[1] + 8 * lane, pairs);
  tile::store_8x8(rows[2] + 8 * lane, transposed_pairs);
  __syncwarp();
  for (int i = lane; i < 4 * 64; i += 32) {
    stored[i] = rows[0][i];
    store_transposed[i] = rows[1][i];
    transposed[i] = rows[2][i];
  }
#endif
}

// Where the operands lie: panels of 64 columns.
template <int n>
struct Operands {
  static constexpr int kPanel = 64 * 128, kPanels = (n + 63) / 64;
  static constexpr int kBytes = kPanel + n * 128 + kPanels * kPanel;
  unsigned char *a, *b, *c;

  __device__ explicit Operands(unsigned char* shared) {
    a = shared;
    c = a + kPanel;
    b = c + kPanels * kPanel;
  }
};

// The kind of product that `out` has first, second, third, fourth.
template <typename T, int n, bool registers, tile::BLayout layout>
__device__ void multiply_one(const Operands<n>& x, float* out) {
  float d[n / 2] = {};
  std::uint32_t fragments[4][4];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int step = 0; step < 4; ++step) {
    cuda::load_matrices(fragments[step],
                        x.a + tile::swizzled(16 * warp + lane % 16, 2 * step + lane / 16));
  }
  tile::pin(d);
  tile::wgmma_fence();
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const std::uint64_t b =
        layout == tile::BLayout::depth_contiguous
            ? tile::moved(tile::depth_contiguous(x.b), 32 * step)
            : tile::moved(tile::columns_contiguous(x.c, Operands<n>::kPanel), 2048 * step);
    if constexpr (registers) {
      tile::Wgmma<n>::template registers<T, layout>(d, fragments[step], b);
    } else {
      tile::Wgmma<n>::template shared<T, layout>(
          d, tile::moved(tile::depth_contiguous(x.a), 32 * step), b, step > 0);
    }
  }
  tile::wgmma_commit();
  tile::wgmma_wait<0>();
  tile::pin(d);
  const int row = 16 * warp + lane / 4;
#pragma unroll
  for (int i = 0; i < n / 2; ++i) {
    out[(row + i / 2 % 2 * 8) * n + i / 4 * 8 + 2 * (lane % 4) + i % 2] = d[i];
  }
}

template <typename T, int n>
__global__ void multiply(const __grid_constant__ WideMaps maps, float* out) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  __shared__ std::uint64_t full;
  const Operands<n> x(shared);
  if (threadIdx.x == 0) {
    tile::init_barrier(full, 1);
    tile::publish_barriers();
    tile::arrive_expecting(full, Operands<n>::kBytes);
    tile::load_box(x.a, &maps.a, {0, 0, 0, 0}, full);
    tile::load_box(x.b, &maps.b, {0, 0, 0, 0}, full);
    for (int i = 0; i < Operands<n>::kPanels; ++i) {
      tile::load_box(x.c + i * Operands<n>::kPanel, &maps.c, {64 * i, 0, 0, 0}, full);
    }
  }
  __syncthreads();
  tile::wait(full, 0);
  using tile::BLayout;
  multiply_one<T, n, false, BLayout::depth_contiguous>(x, out);
  multiply_one<T, n, false, BLayout::columns_contiguous>(x, out + 64 * n);
  multiply_one<T, n, true, BLayout::depth_contiguous>(x, out + 2 * 64 * n);
  multiply_one<T, n, true, BLayout::columns_contiguous>(x, out + 3 * 64 * n);
#endif
}

// Barrier 1 + w calls warpgroup w.
__global__ void __launch_bounds__(3 * tile::kWarpgroup) note_turns(std::int32_t* notes) {
  __shared__ int noted;
  if (threadIdx.x == 0) noted = 0;
  __syncthreads();
  const int warpgroup = threadIdx.x / tile::kWarpgroup;
  const int next = (warpgroup + 1) % 3;
  if (warpgroup == 1) tile::barrier_arrive(1 + 2, 2 * tile::kWarpgroup);
  for (int i = 0; i < kTurns / 3; ++i) {
    tile::barrier_sync(1 + warpgroup, 2 * tile::kWarpgroup);
    if (threadIdx.x % tile::kWarpgroup == 77) notes[atomicAdd(&noted, 1)] = warpgroup;
    // The last one's call would stay behind.
    if (warpgroup != 1 || i + 1 < kTurns / 3) tile::barrier_arrive(1 + next, 2 * tile::kWarpgroup);
  }
}

__global__ void send_to_all(int blocks, float* out) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __shared__ float4 got[8][32];
  __shared__ std::uint64_t come;
  const int rank = tile::cluster_rank(), lane = threadIdx.x;
  if (lane == 0) {
    tile::init_barrier(come, 1);
    tile::publish_barriers();
    tile::arrive_expecting(come, static_cast<std::uint32_t>(blocks * 32 * sizeof(float4)));
  }
  __syncwarp();
  tile::cluster_meet();
  for (int to = 0; to < blocks; ++to) {
    tile::send(tile::shared_of(to, &got[rank][lane]), tile::shared_of(to, &come),
               make_float4(static_cast<float>(rank), static_cast<float>(to),
                           static_cast<float>(lane), 1.f));
  }
  tile::wait(come, 0);
  for (int from = 0; from < blocks; ++from) {
    reinterpret_cast<float4*>(out)[(rank * blocks + from) * 32 + lane] = got[from][lane];
  }
#endif
}

template <typename T, int n>
void launch_wide(Context& ctx, const WideMaps& maps, float* out) {
  cuda::Launch(ctx, "multiply_wide")(
      multiply<T, n>,
      {.blocks = 1, .threads = tile::kWarpgroup, .shared_bytes = Operands<n>::kBytes}, maps, out);
}

}  // namespace

void transpose_matrices(Context& ctx, const std::uint16_t* in, std::uint16_t* stored,
                        std::uint16_t* store_transposed, std::uint16_t* transposed) {
  cuda::Launch(ctx, "transpose_matrices")(transpose, {.blocks = 1, .threads = 32}, in, stored,
                                          store_transposed, transposed);
}

template <typename T>
void multiply_wide(Context& ctx, int n, const WideMaps& maps, float* out) {
  using Element = std::conditional_t<std::is_same_v<T, Half>, __half, __nv_bfloat16>;
  switch (n) {
    case 16:
      return launch_wide<Element, 16>(ctx, maps, out);
    case 64:
      return launch_wide<Element, 64>(ctx, maps, out);
    case 80:
      return launch_wide<Element, 80>(ctx, maps, out);
    case 96:
      return launch_wide<Element, 96>(ctx, maps, out);
    case 128:
      return launch_wide<Element, 128>(ctx, maps, out);
    case 176:
      return launch_wide<Element, 176>(ctx, maps, out);
    case 192:
      return launch_wide<Element, 192>(ctx, maps, out);
    default:
      return launch_wide<Element, 256>(ctx, maps, out);
  }
}
template void multiply_wide<Half>(Context&, int, const WideMaps&, float*);
template void multiply_wide<BFloat16>(Context&, int, const WideMaps&, float*);

void take_turns(Context& ctx, std::int32_t* notes) {
  cuda::Launch(ctx, "take_turns")(note_turns, {.blocks = 1, .threads = 3 * tile::kWarpgroup},
                                  notes);
}

void exchange(Context& ctx, int blocks, float* out) {
  cuda::Launch(ctx, "exchange")(send_to_all, {.blocks = blocks, .threads = 32, .cluster = blocks},
                                blocks, out);
}

}  // namespace tessera::test
