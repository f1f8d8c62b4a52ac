// The gradients of attention for Hopper (sm_90a): cuda.hopper of attention_backward().
//
// A block has 128 keys of one head and goes over the tiles of queries that see some of them. One
// warpgroup fetches; two compute, with 64 of the keys each:
//
//   S^T  = K Q^T     P^T  = 2^(S^T - exponent)
//   dP^T = V dO^T    dS^T = P^T (dP^T - delta)
//   dV  += P^T dO    dK  += dS^T Q               sums in registers, left operand from registers
//   dQ   = dS K      added to sums in memory     dS of both warpgroups by way of shared memory
//
// Keys are the rows of all products but the last, so that P^T and dS^T can be left operands
// unchanged. The heads of a group share their keys: a block goes over the queries of all these
// heads.
//
//                              dim 64              dim 128           (80 and 96 lie between)
//   queries of a tile          128                 64
//   registers of a thread      S, dP 64 each       32 each
//                              dK, dV 32 each      64 each
//                              P, dS as operands   16 each; dQ 32
//                              32 each; dQ 32
//   shared memory              K, V 32 KB          64 KB
//                              Q, dO 3 x 32 KB     3 x 32 KB
//                              dS 2 x 32 KB        2 x 16 KB
//                              192 KB              192 KB
//
// A product of 64 x 64 with both operands in shared memory reads them as fast as it multiplies; a
// product of 64 x 128 has a third of that time to spare, one with an operand in registers half. So
// a tile of 64 queries keeps shared memory busy for about 0.95 of the time that its products take.
//
// S^T of the next tile is started before the wait for this tile's dQ, so that the tensor cores have
// work while dQ is added in memory.
//
// dQ of a tile is a piece of 64 x 64 for each warpgroup: half of the columns at dim 128, half of
// the rows at dim 64. Sums in memory have the order of the registers (call.h), so that a warp adds
// 512 adjacent bytes. finish.cu reorders them. Blocks add in any order: results differ in their
// last bits from run to run.
//
// examples/learn has no gradients. Steps 7 and 8 teach the roles of the warps and wgmma.
#pragma once

#include "cuda/attention/backward/hopper/compute.cuh"
#include "cuda/attention/backward/hopper/fetch.cuh"

namespace tessera::cuda::backward {

template <typename B>
__global__ void __launch_bounds__(B::kThreads, 1)
    sum_gradients(const __grid_constant__ HopperGradients call) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  auto& memory = *reinterpret_cast<typename B::Memory*>(shared);
  B::init(memory.barriers);
  const HopperWork work = find_hopper_work<B::kQueries>(call, static_cast<int>(blockIdx.x));
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / tile::kWarpgroup, 0);
  if (warpgroup == 0) {
    tile::give_up_registers<B::kFetchRegisters>();
    if (threadIdx.x == 0) fetch<B>(call, work, memory);
  } else {
    tile::take_registers<B::kComputeRegisters>();
    HopperWarpgroup<B>(call, work, memory, warpgroup - 1).run();
  }
#else
  __trap();  // the host launches this only on Hopper
#endif
}

}  // namespace tessera::cuda::backward
