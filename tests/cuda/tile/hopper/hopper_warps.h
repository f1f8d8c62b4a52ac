// Kernels of the tile layer's pieces by which warps, warpgroups and blocks of a cluster work
// together on Hopper: matrices transposed and stored, products of every width, turns, numbers sent.
#pragma once

#include <cstdint>

#include "cuda/tile/hopper/tensor_map.h"
#include "tessera/context.h"

namespace tessera::test {

// Stores four matrices [4, 8, 8] that a warp holds in registers: by store_8x8, by store_transposed,
// and by store_8x8 after transpose_8x8.
void transpose_matrices(Context& ctx, const std::uint16_t* in, std::uint16_t* stored,
                        std::uint16_t* store_transposed, std::uint16_t* transposed);

// Out [4, 64, n]: a b^T with a in shared memory, a c with a in shared memory, and both with a in
// registers; a is [64, 64], b [n, 64], c [64, n], maps with boxes of 64, n and 64 rows.
inline constexpr int kWidths[] = {16, 64, 80, 96, 128, 176, 192, 256};
struct WideMaps {
  CUtensorMap a, b, c;
};
template <typename T>  // Half or BFloat16
void multiply_wide(Context& ctx, int n, const WideMaps& maps, float* out);

// Three warpgroups take turns, in the order 2, 0, 1: each notes its index when it is called.
inline constexpr int kTurns = 30;
void take_turns(Context& ctx, std::int32_t* notes);

// Each thread of each block of a cluster sends (sender's rank, receiver's, thread, 1) to every
// block: out [blocks, blocks, 32, 4] has what block b got from each.
void exchange(Context& ctx, int blocks, float* out);

}  // namespace tessera::test
