// The fetching side of the Hopper kernel for gradients: one thread keeps the copy engine busy.
#pragma once

#include "cuda/attention/backward/hopper/block.cuh"
#include "cuda/attention/backward/hopper/work.cuh"
#include "cuda/tile/hopper/tma.cuh"

namespace tessera::cuda::backward {

template <int panels, int rows>
__device__ void fetch_boxes(unsigned char* to, const CUtensorMap& map, int row, int head, int batch,
                            std::uint64_t& full) {
#pragma unroll
  for (int panel = 0; panel < panels; ++panel) {
    tile::load_box(to + panel * rows * 128, &map, {64 * panel, row, head, batch}, full);
  }
}

template <typename B>
__device__ void fetch(const HopperGradients& call, const HopperWork& work,
                      typename B::Memory& memory) {
  auto& bar = memory.barriers;
  constexpr int kValueBytes = B::kQueries * static_cast<int>(sizeof(float));
  const int k0 = work.key_tile * B::kKeys;
  const auto fetch_keys = [&](unsigned char* to, const CUtensorMap& map, std::uint64_t& full) {
    tile::arrive_expecting(full, B::kKeyBytes);
    fetch_boxes<B::kPanels, B::kKeys>(to, map, k0, work.kv_head, work.batch, full);
  };
  HopperStep step = HopperStep::first(work);
  tile::Ring<B::kStages> stage;
#pragma unroll 1
  for (int n = 0; n < work.steps; ++n) {
    const int head = work.kv_head * call.group + step.head, row = step.tile * B::kQueries;
    const std::int64_t at =
        (std::int64_t{work.batch} * call.heads + head) * call.query_tiles * B::kQueries + row;
    const auto fetch_queries = [&](unsigned char* to, const CUtensorMap& map, float* value_to,
                                   const float* values, std::uint64_t& full) {
      tile::arrive_expecting(full, B::kQueryBytes + kValueBytes);
      fetch_boxes<B::kPanels, B::kQueries>(to, map, row, head, work.batch, full);
      tile::copy_bulk(value_to, values + at, kValueBytes, full);
    };
    const int i = stage.place;
    tile::wait(bar.free[i], stage.parity ^ 1);
    if (n == 0) fetch_keys(memory.k, call.k, bar.k_full);
    fetch_queries(memory.q[i], call.q, memory.exponent[i], call.exponent, bar.q_full[i]);
    if (n == 0) fetch_keys(memory.v, call.v, bar.v_full);
    fetch_queries(memory.d_out[i], call.d_out, memory.delta[i], call.delta, bar.d_out_full[i]);
    stage.advance();
    step.advance(work);
  }
}

}  // namespace tessera::cuda::backward
