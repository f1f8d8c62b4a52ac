#include "cuda/tile/hopper/hopper_copies.h"

#include <cuda_fp16.h>

#include "cuda/runtime/launch.h"
#include "cuda/tile/hopper/cluster.cuh"
#include "cuda/tile/hopper/mbarrier.cuh"
#include "cuda/tile/hopper/tma.cuh"
#include "cuda/tile/hopper/warpgroup.cuh"
#include "cuda/tile/swizzle.cuh"

namespace tessera::test {
namespace {

namespace tile = cuda::tile;

constexpr int kThreads = 128;
constexpr int kBoxBytes = kBox * kBox * 2;

// For an element of a swizzled box.
template <typename T>
__device__ T& element(unsigned char* box, int row, int column) {
  return reinterpret_cast<T*>(box + tile::swizzled(row, column / 8))[column % 8];
}

struct TwoMaps {
  CUtensorMap in, out;
};

__global__ void move(const __grid_constant__ TwoMaps maps, BoxPlace from, BoxPlace to) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char box[];
  __shared__ std::uint64_t full;
  if (threadIdx.x == 0) {
    tile::prefetch_map(&maps.in);
    tile::init_barrier(full, 1);
    tile::publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    tile::arrive_expecting(full, kBoxBytes);
    tile::load_box(box, &maps.in, from.at, full);
  }
  tile::wait(full, 0);
  for (int i = threadIdx.x; i < kBox * kBox; i += kThreads) {
    __half& x = element<__half>(box, i / kBox, i % kBox);
    x = __int2half_rn(marked(__half2int_rn(x), i / kBox, i % kBox));
  }
  tile::publish_shared();
  __syncthreads();
  if (threadIdx.x == 0) {
    tile::store_box(&maps.out, to.at, box);
    tile::close_store_group();
    tile::wait_until_read<0>();
  }
#endif
}

__global__ void share(const __grid_constant__ CUtensorMap in, Masks masks, int blocks,
                      std::uint16_t* out) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char boxes[];  // [blocks]: by whom they are brought
  __shared__ std::uint64_t full;
  const int rank = tile::cluster_rank();
  int coming = 0;
  for (int r = 0; r < blocks; ++r) coming += masks.of[r] >> rank & 1;
  if (threadIdx.x == 0) {
    tile::init_barrier(full, 1);
    tile::publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x == 0) tile::arrive_expecting(full, coming * kBoxBytes);
  __syncwarp();
  tile::cluster_meet();  // all have barriers
  if (threadIdx.x == 0 && masks.of[rank] != 0) {
    tile::load_box_for(masks.of[rank], boxes + rank * kBoxBytes, &in, {0, kBox * rank, 0, 0}, full);
  }
  tile::wait(full, 0);
  for (int r = 0; r < blocks; ++r) {
    const bool came = masks.of[r] >> rank & 1;
    std::uint16_t* to = out + (rank * blocks + r) * kBox * kBox;
    for (int i = threadIdx.x; i < kBox * kBox; i += kThreads) {
      constexpr std::uint16_t kMinusOne = 0xbc00;  // f16
      to[i] = came ? element<std::uint16_t>(boxes + r * kBoxBytes, i / kBox, i % kBox) : kMinusOne;
    }
  }
#endif
}

__global__ void load(const __grid_constant__ CUtensorMap in, int row, int unit, int bytes,
                     unsigned char* out) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) unsigned char rows[];
  __shared__ std::uint64_t full;
  if (threadIdx.x == 0) {
    tile::init_barrier(full, 1);
    tile::publish_barriers();
    tile::arrive_expecting(full, static_cast<std::uint32_t>(bytes));
    tile::load_box(rows, &in, {unit, row}, full);
  }
  __syncthreads();
  tile::wait(full, 0);
  for (int i = threadIdx.x; i < bytes; i += kThreads) out[i] = rows[i];
#endif
}

// One thread fetches, the warps before its own add; what comes passes through three buffers, and
// what goes through two.
__global__ void add(const std::int32_t* in, std::int32_t* out, int count, int piece) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kPlaces = 3, kAdders = kThreads - 32;
  __shared__ __align__(128) std::int32_t coming[kPlaces][kMostPiece], going[2][kMostPiece];
  __shared__ std::uint64_t full[kPlaces], free[kPlaces];
  if (threadIdx.x == 0) {
    for (int i = 0; i < kPlaces; ++i) {
      tile::init_barrier(full[i], 1);
      tile::init_barrier(free[i], kAdders);
    }
    tile::publish_barriers();
  }
  __syncthreads();
  tile::Ring<kPlaces> at;
  if (threadIdx.x >= kAdders) {
    for (int i = 0; i < count && threadIdx.x == kAdders; i += piece, at.advance()) {
      const auto bytes = static_cast<std::uint32_t>(4 * min(piece, count - i));
      tile::wait(free[at.place], at.parity ^ 1);
      tile::arrive_expecting(full[at.place], bytes);
      tile::copy_bulk(coming[at.place], in + i, bytes, full[at.place]);
    }
    return;
  }
  tile::Ring<2> to;
  for (int i = 0; i < count; i += piece, at.advance(), to.advance()) {
    const int words = min(piece, count - i);
    tile::wait(full[at.place], at.parity);
    if (threadIdx.x == 0) tile::wait_until_read<1>();  // the store before the last was from here
    tile::barrier_sync(1, kAdders);
    for (int w = threadIdx.x; w < words; w += kAdders) {
      going[to.place][w] = coming[at.place][w] + 1;
    }
    tile::arrive(free[at.place]);
    tile::publish_shared();
    tile::barrier_sync(2, kAdders);
    if (threadIdx.x == 0) {
      tile::store_bulk(out + i, going[to.place], static_cast<std::uint32_t>(4 * words));
      tile::close_store_group();
    }
  }
  if (threadIdx.x == 0) tile::wait_until_stored<0>();
#endif
}

}  // namespace

void move_box(Context& ctx, const CUtensorMap& in, BoxPlace from, const CUtensorMap& out,
              BoxPlace to) {
  cuda::Launch(ctx, "move_box")(move, {.blocks = 1, .threads = kThreads, .shared_bytes = kBoxBytes},
                                {in, out}, from, to);
}

void share_boxes(Context& ctx, const CUtensorMap& in, Masks masks, int blocks, std::uint16_t* out) {
  cuda::Launch(ctx, "share_boxes")(share,
                                   {.blocks = blocks,
                                    .threads = kThreads,
                                    .shared_bytes = blocks * kBoxBytes,
                                    .cluster = blocks},
                                   in, masks, blocks, out);
}

void load_bytes(Context& ctx, const CUtensorMap& in, int row, int unit, int box_bytes,
                unsigned char* out) {
  cuda::Launch(ctx, "load_bytes")(load,
                                  {.blocks = 1, .threads = kThreads, .shared_bytes = box_bytes}, in,
                                  row, unit, box_bytes, out);
}

void add_one(Context& ctx, const std::int32_t* in, std::int32_t* out, int count, int piece) {
  cuda::Launch(ctx, "add_one")(add, {.blocks = 1, .threads = kThreads}, in, out, count, piece);
}

}  // namespace tessera::test
