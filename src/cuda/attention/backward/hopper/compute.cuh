// The computing side of the Hopper kernel for gradients: a warpgroup with 64 keys.
#pragma once

#include <cstdint>

#include "cuda/attention/backward/hopper/block.cuh"
#include "cuda/attention/backward/hopper/products.cuh"
#include "cuda/attention/backward/hopper/work.cuh"
#include "cuda/tile/exp2.cuh"
#include "cuda/tile/swizzle.cuh"
#include "cuda/tile/transpose.cuh"

namespace tessera::cuda::backward {

template <typename B>
class HopperWarpgroup {
 public:
  __device__ HopperWarpgroup(const HopperGradients& call, const HopperWork& work,
                             typename B::Memory& memory, int index)
      : call_(call),
        work_(work),
        memory_(memory),
        bar_(memory.barriers),
        index_(index),
        step_(HopperStep::first(work)) {}

  __device__ void run() {
#pragma unroll
    for (int i = 0; i < B::kDim / 2; ++i) d_k_[i] = d_v_[i] = 0.f;
    if (work_.steps > 0) {
      tile::wait(bar_.k_full, 0);
      start_scores(stage_);
      tile::wait(bar_.v_full, 0);
      finish_scores();
#pragma unroll 1
      for (int n = 1; n < work_.steps; ++n) visit<true>();
      visit<false>();
    }
    const int key = first_key();
    store_keys<B>(call_.d_k, work_.batch, work_.kv_head, key, call_.n_k, call_.dim, call_.scale,
                  d_k_);
    store_keys<B>(call_.d_v, work_.batch, work_.kv_head, key, call_.n_k, call_.dim, 1.f, d_v_);
  }

 private:
  using Pairs = float[B::kQueries / 2];
  using Operand = std::uint32_t[B::kQueries / 16][4];
  // Whether dV starts early. With 128 queries, its operand would need registers that are not there
  // beside P and dP.
  static constexpr bool kEarly = B::kQueries == 64;

  __device__ int first_key() const { return work_.key_tile * B::kKeys + 64 * index_; }

  // Computes P^T from S^T.
  __device__ void weigh(Pairs& s, const float* exponent, int q0) const {
    const float* mine = exponent + 2 * (threadIdx.x % 4);
#pragma unroll
    for (int j = 0; j < B::kQueries / 8; ++j) {
      const float2 e = *reinterpret_cast<const float2*>(mine + 8 * j);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        s[4 * j + 2 * r] = fast_exp2(fmaf(s[4 * j + 2 * r], call_.q_factor, -e.x));
        s[4 * j + 2 * r + 1] = fast_exp2(fmaf(s[4 * j + 2 * r + 1], call_.q_factor, -e.y));
      }
    }
    if (all_see(call_, B::kQueries, q0, first_key())) return;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const SeenBy seen =
          SeenBy::of(call_, q0 + 2 * (lane % 4), first_key() + 16 * warp + lane / 4 + 8 * r);
#pragma unroll
      for (int j = 0; j < B::kQueries / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (!seen(8 * j + i)) s[4 * j + 2 * r + i] = 0.f;
        }
      }
    }
  }

  // Computes dS^T from P^T and dP^T, in place of dP^T.
  __device__ static void find_d_scores(const Pairs& p, Pairs& dp, const float* delta) {
    const float* mine = delta + 2 * (threadIdx.x % 4);
#pragma unroll
    for (int j = 0; j < B::kQueries / 8; ++j) {
      const float2 d = *reinterpret_cast<const float2*>(mine + 8 * j);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        dp[4 * j + 2 * r] = p[4 * j + 2 * r] * (dp[4 * j + 2 * r] - d.x);
        dp[4 * j + 2 * r + 1] = p[4 * j + 2 * r + 1] * (dp[4 * j + 2 * r + 1] - d.y);
      }
    }
  }

  __device__ static void to_operand(const Pairs& from, Operand& to) {
#pragma unroll
    for (int i = 0; i < B::kQueries / 4; ++i) {
      to[i / 4][i % 4] = pack(from[2 * i], from[2 * i + 1], typename B::T());
    }
  }

  // Stores dS^T to shared memory transposed, as rows of queries: the warpgroup's panel.
  __device__ void put_down(const Operand& ds, unsigned char* d_scores) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    unsigned char* panel = d_scores + index_ * B::kQueryPanel;
    const int query = lane / 16 * 8 + lane % 8, part = 2 * warp + lane / 8 % 2;
#pragma unroll
    for (int step = 0; step < B::kQueries / 16; ++step) {
      tile::store_transposed(panel + tile::swizzled(16 * step + query, part), ds[step]);
    }
  }

  // Starts S^T of a tile, as soon as its queries have arrived.
  __device__ void start_scores(const tile::Ring<B::kStages>& stage) {
    tile::wait(bar_.q_full[stage.place], stage.parity);
    tile::wgmma_fence();
    start_pairs<B>(s_, memory_.k + index_ * 64 * 128, memory_.q[stage.place]);
  }

  // Must be called in the loop iteration that started the scores: else the assembler makes every
  // product wait for the one before it (C7514).
  __device__ void finish_scores() {
    tile::wgmma_wait<0>();
    tile::pin(s_);
  }

  // One query tile, whose S^T is done. With `more`, S^T of the next tile is started before the wait
  // for this tile's dQ: the tensor cores have work while dQ is added in memory.
  template <bool more>
  __device__ void visit() {
    const int place = stage_.place;
    const int q0 = step_.tile * B::kQueries;
    const int offset = index_ * 64 * 128;  // the warpgroup's keys in a panel
    const unsigned char *q = memory_.q[place], *d_out = memory_.d_out[place];
    unsigned char* d_scores = memory_.d_scores[turn_];
    Pairs dp;
    Operand p, ds;
    tile::wait(bar_.d_out_full[place], stage_.parity);
    tile::wgmma_fence();
    start_pairs<B>(dp, memory_.v + offset, d_out);
    // Nothing to wait for, but it keeps the assembler from moving exponentials up between the
    // products.
    tile::wgmma_wait<1>();
    tile::pin(s_);
    weigh(s_, memory_.exponent[place], q0);
    if constexpr (kEarly) {
      to_operand(s_, p);
      tile::pin(d_v_);
      tile::wgmma_fence();
      start_key_sums<B>(d_v_, p, d_out);
      tile::wgmma_wait<1>();
    } else {
      tile::wgmma_wait<0>();
    }
    tile::pin(dp);
    find_d_scores(s_, dp, memory_.delta[place]);
    to_operand(dp, ds);
    if constexpr (!kEarly) to_operand(s_, p);
    put_down(ds, d_scores);
    tile::publish_shared();
    tile::pin(d_k_);
    tile::wgmma_fence();
    if constexpr (!kEarly) {
      tile::pin(d_v_);
      start_key_sums<B>(d_v_, p, d_out);
    }
    start_key_sums<B>(d_k_, ds, q);
    // Both warpgroups have stored their part of dS. They use the two places of dS in turn: a
    // warpgroup that gets here has read what the place held two tiles ago.
    tile::barrier_sync(1, 2 * tile::kWarpgroup);
    float piece[32];
    tile::wgmma_fence();
    // With 64 queries a warpgroup has half of the columns, with 128 queries half of the rows.
    if constexpr (B::kPanels == 2) {
      start_query_piece<B>(piece, d_scores, memory_.k + index_ * B::kKeyPanel);
    } else {
      start_query_piece<B>(piece, d_scores + offset, memory_.k);
    }
    stage_.advance();
    if constexpr (more) {
      tile::wgmma_wait<1>();  // dV and dK: there are no registers for their left operands beside S
      start_scores(stage_);
    }
    tile::wgmma_wait<more ? 1 : 0>();
    tile::pin(piece);
    tile::pin(d_k_);
    tile::pin(d_v_);
    tile::arrive(bar_.free[place]);  // every lane, because each reads exponents and deltas
    const std::int64_t head =
        std::int64_t{work_.batch} * call_.heads + work_.kv_head * call_.group + step_.head;
    add_piece(
        call_.d_q_sums + ((head * call_.query_tiles + step_.tile) * 2 + index_) * kPieceFloats,
        piece);
    if constexpr (more) finish_scores();
    turn_ ^= 1;
    step_.advance(work_);
  }

  const HopperGradients& call_;
  const HopperWork& work_;
  typename B::Memory& memory_;
  typename B::Barriers& bar_;
  const int index_;
  HopperStep step_;
  tile::Ring<B::kStages> stage_{};
  int turn_ = 0;
  Pairs s_;  // S^T, then P^T
  float d_k_[B::kDim / 2], d_v_[B::kDim / 2];
};

}  // namespace tessera::cuda::backward
