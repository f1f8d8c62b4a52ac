#include "cuda/tile/hopper/hopper_tile.h"

#include <cstdint>

#include "cuda/runtime/launch.h"
#include "cuda/tile/hopper/mbarrier.cuh"
#include "cuda/tile/hopper/tma.cuh"
#include "cuda/tile/hopper/warpgroup.cuh"
#include "cuda/tile/hopper/wgmma.cuh"

namespace tessera::test {
namespace {

namespace tile = cuda::tile;

struct Maps {
  CUtensorMap q, k, v;
};

// Stores a fragment's elements to their places in a matrix of `columns` columns.
template <int n>
__device__ void store_fragment(float* to, int columns, const float (&d)[n]) {
  const int lane = threadIdx.x % 32, row = 16 * (threadIdx.x / 32) + lane / 4;
  for (int i = 0; i < n; ++i) {
    to[(row + i / 2 % 2 * 8) * columns + i / 4 * 8 + 2 * (lane % 4) + i % 2] = d[i];
  }
}

__device__ std::uint32_t packed(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

__global__ void multiply(const __grid_constant__ Maps maps, float* scores, float* out) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  __shared__ std::uint64_t full;
  unsigned char *q = shared, *k = q + kRows * 128, *v = k + kKeys * 128;
  if (threadIdx.x == 0) {
    tile::init_barrier(full, 1);
    tile::publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    tile::arrive_expecting(full, (kRows + 2 * kKeys) * 128);
    tile::load_box(q, &maps.q, {0, 0, 0, 0}, full);
    tile::load_box(k, &maps.k, {0, 0, 0, 0}, full);
    tile::load_box(v, &maps.v, {0, 0, 0, 0}, full);
  }
  tile::wait(full, 0);

  float s[kKeys / 2], o[kDim / 2] = {};
  tile::wgmma_fence();
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    tile::Wgmma<kKeys>::shared<__nv_bfloat16, tile::BLayout::depth_contiguous>(
        s, tile::moved(tile::depth_contiguous(q), 32 * step),
        tile::moved(tile::depth_contiguous(k), 32 * step), step > 0);
  }
  tile::wgmma_commit();
  tile::wgmma_wait<0>();
  tile::pin(s);
  store_fragment(scores, kKeys, s);

  std::uint32_t p[kKeys / 16][4];
#pragma unroll
  for (int i = 0; i < kKeys / 4; ++i) p[i / 4][i % 4] = packed(s[2 * i], s[2 * i + 1]);
  tile::pin(o);
  tile::wgmma_fence();
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
    tile::Wgmma<kDim>::registers<__nv_bfloat16, tile::BLayout::columns_contiguous>(
        o, p[step], tile::moved(tile::columns_contiguous(v, kKeys * 128), 2048 * step));
  }
  tile::wgmma_commit();
  tile::wgmma_wait<0>();
  tile::pin(o);
  store_fragment(out, kDim, o);
#endif
}

}  // namespace

void two_products(Context& ctx, const CUtensorMap& q, const CUtensorMap& k, const CUtensorMap& v,
                  float* scores, float* out) {
  cuda::Launch(ctx, "two_products")(
      multiply,
      {.blocks = 1, .threads = tile::kWarpgroup, .shared_bytes = (kRows + 2 * kKeys) * 128},
      Maps{q, k, v}, scores, out);
}

}  // namespace tessera::test
