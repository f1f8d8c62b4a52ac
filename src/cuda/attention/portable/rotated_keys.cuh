// Keys that are rotated as they are read (rope_on_read), in the registers of one warp.
//
// Key j of a step of 16 has the position k0 + j. The score of a query with it is
//
//   (R(k0 + j) k) . q = (R(j - 7.5) k) . (R(-(k0 + 7.5)) q)
//
// One rotation of the queries serves all keys of a step. The rotations of the keys are the same in
// every step, so they come from a table. The table is small, because key 15 - j rotates by the
// angle of key j in the opposite direction. So a lane has keys g and 15 - g: the second half of a
// step is in falling order.
//
//   columns of scores    0  1  2  3  4  5  6  7 |  8  9 10 11 12 13 14 15
//   key of the step      0  1  2  3  4  5  6  7 | 15 14 13 12 11 10  9  8
//
// The order of elements along the head dim is free too. A step of mma.sync takes the first elements
// of 8 pairs and their 8 second elements. Both elements of a pair are then in the same lane, at the
// same place of two registers.
#pragma once

#include <cstdint>

#include "cuda/attention/portable/fragments.cuh"
#include "cuda/attention/portable/split_block.cuh"
#include "cuda/linear/layout/fragments.cuh"
#include "cuda/rotary/rope.cuh"
#include "cuda/tile/fast_sincos.cuh"

namespace tessera::cuda::split {

// The angle of half a position, because the middle of a step lies between two positions. Its unit
// is 2^-64 of a turn, so that multiples of it need no reduction.
__device__ inline std::uint64_t half_position(float inv_freq) {
  constexpr double kHalfTurns = 0.07957747154594767;  // 1 / (4 pi)
  const double turns = static_cast<double>(inv_freq) * kHalfTurns;
  return static_cast<std::uint64_t>((turns - floor(turns)) * 0x1p64);
}
// The cosine and sine of an angle in units of 2^-32 of a turn.
__device__ inline CosSin cos_sin_of(std::uint32_t angle) {
  constexpr float kRadians = 1.46291807926715968e-9f;  // pi / 2^31
  return fast_cos_sin(kRadians * static_cast<float>(static_cast<std::int32_t>(angle)));
}

// Where the elements of a step of mma.sync lie in a row: a lane with lane % 4 == t has `first`, the
// next one, and their partners from `second` on. Steps from `rotated` on have their 16 elements in
// order.
struct RotatedPlaces {
  int pairs, rotated;  // `rotated`: steps

  __device__ explicit RotatedPlaces(const AttentionCall& call)
      : pairs(static_cast<int>(call.pairs)), rotated((pairs + 7) / 8) {}

  // For pairs of halves of a head. After the last pair, elements that are not rotated fill the
  // step.
  __device__ int first(int step, int t) const {
    const int pair = 8 * step + 2 * t;
    return pair < pairs ? pair : pair + pairs;
  }
  __device__ int second(int step, int t) const {
    const int pair = 8 * step + 2 * t;
    return pair < pairs ? pair + pairs : pair + 8 * rotated;
  }
};

// The rotations that a block keeps in shared memory.
template <int dim>
struct RotationTables {
  // For keys: 16-bit cosines and sines of two pairs, for the keys g of all lanes.
  uint2 keys[dim / 16][32];
  // For queries: (cos, sin, cos, sin) of two pairs, at the middle of each warp's step.
  float4 middles[kWarps][dim / 4];
};

// The rotations of a lane's two pairs: 2 lane and 2 lane + 1.
struct LaneRotations {
  std::uint64_t units[2];

  __device__ void load(const AttentionCall& call) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int pair = 2 * lane_of_warp() + i;
      units[i] = pair < call.pairs ? half_position(call.inv_freq[pair]) : 0;
    }
  }
  // Makes the rotations of keys. All threads of a block call it: each warp makes two of the keys g.
  template <typename T, int dim>
  __device__ void make_keys(RotationTables<dim>& tables) const {
    if (lane_of_warp() >= dim / 4) return;
#pragma unroll
    for (int i = 0; i < 8 / kWarps; ++i) {
      const int g = warp_of_block() * (8 / kWarps) + i;
      const auto times = static_cast<std::uint64_t>(std::int64_t{2 * g - (kStepKeys - 1)});
      const CosSin a = cos_sin_of(static_cast<std::uint32_t>(units[0] * times >> 32));
      const CosSin b = cos_sin_of(static_cast<std::uint32_t>(units[1] * times >> 32));
      tables.keys[lane_of_warp() / 4][4 * g + lane_of_warp() % 4] =
          make_uint2(halves_of<T>(a.cos, b.cos), halves_of<T>(a.sin, b.sin));
    }
  }
  // Makes the rotations of queries for a step. A warp calls it, and syncs before it reads them.
  template <int dim>
  __device__ void make_middle(int k0, RotationTables<dim>& tables) const {
    if (lane_of_warp() >= dim / 4) return;
    const auto middle = static_cast<std::uint32_t>(2 * k0 + kStepKeys - 1);
    const auto at_middle = [&](std::uint64_t unit) {
      const auto low = static_cast<std::uint32_t>(unit);
      return cos_sin_of(static_cast<std::uint32_t>(unit >> 32) * middle +
                        static_cast<std::uint32_t>(std::uint64_t{low} * middle >> 32));
    };
    const CosSin a = at_middle(units[0]), b = at_middle(units[1]);
    tables.middles[warp_of_block()][lane_of_warp()] = make_float4(a.cos, a.sin, b.cos, b.sin);
  }
};

// Rotates two pairs of key g, and the same two of key 15 - g in the opposite direction. In 16 bits:
// the product with the sine is rounded, then the sum. Errors of scores are 1.1 times those with
// keys rotated in f32 and rounded (docs/notebook/attention_portable.md).
template <typename T>
__device__ void rotate_keys_of_lane(std::uint32_t (&b)[4], uint2 rotation) {
  const auto multiply_add = [](Halves x, Halves y, Halves z) {
    using P = CudaHalves<T>;
    return same_bits<Halves>(__hfma2(same_bits<P>(x), same_bits<P>(y), same_bits<P>(z)));
  };
  const Halves cos = rotation.x, sin = rotation.y, minus_sin = sin ^ 0x80008000u;
  const Halves first = b[0], first_back = b[1];
  b[0] = multiply_add(b[0], cos, multiply<T>(b[2], minus_sin));
  b[1] = multiply_add(b[1], cos, multiply<T>(b[3], sin));
  b[2] = multiply_add(b[2], cos, multiply<T>(first, sin));
  b[3] = multiply_add(b[3], cos, multiply<T>(first_back, minus_sin));
}

// Rotates two pairs of a query back, in f32, and rounds once.
template <typename T>
__device__ void rotate_query(Halves& first, Halves& second, float4 rotation) {
  const float2 a = unpacked(first, T()), b = unpacked(second, T());
  first =
      pack(fmaf(b.x, rotation.y, a.x * rotation.x), fmaf(b.y, rotation.w, a.y * rotation.z), T());
  second =
      pack(fmaf(-a.x, rotation.y, b.x * rotation.x), fmaf(-a.y, rotation.w, b.y * rotation.z), T());
}

// scores = Q K^T of a step, with both rotated. Common: the whole head is rotated, in pairs of
// halves, and there are at most 8 query rows; the code then has no branch. There are `n_rows` query
// rows at q; later rows repeat them.
template <typename T, int dim, bool common>
struct RotatedProduct {
  using Rows = PaddedRows<dim>;
  const AttentionCall& call;
  const unsigned char* q;
  int n_rows;
  const RotationTables<dim>& tables;

  __device__ void multiply(const unsigned char* keys, Scores<1, kStepKeys>& scores) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[0][0][i] = scores[0][1][i] = 0.f;
    if constexpr (common) {
      multiply_common(keys, scores);
    } else {
      multiply_any(keys, scores);
    }
  }

 private:
  // ldmatrix: lane i of a matrix gives the address of row i. Matrices of keys: keys 0..7 and 15..8,
  // first elements, then second elements.
  __device__ static int key_of_matrix() {
    const int row = lane_of_warp() % 8;
    return lane_of_warp() / 8 % 2 == 0 ? row : kStepKeys - 1 - row;
  }
  __device__ void multiply_rotated(int step, std::uint32_t (&a)[4], std::uint32_t (&b)[4],
                                   Scores<1, kStepKeys>& scores) const {
    const float4 middle = tables.middles[warp_of_block()][4 * step + lane_of_warp() % 4];
    rotate_query<T>(a[0], a[2], middle);
    if (!common && n_rows > 8) {
      rotate_query<T>(a[1], a[3], middle);
    } else {
      a[1] = a[3] = 0;
    }
    rotate_keys_of_lane<T>(b, tables.keys[step][lane_of_warp()]);
    mma_16x8x16(scores[0][0], a, {b[0], b[2]}, T());
    mma_16x8x16(scores[0][1], a, {b[1], b[3]}, T());
  }

  // Matrices of queries: first and second elements of one step, then of the next.
  __device__ void multiply_common(const unsigned char* keys, Scores<1, kStepKeys>& scores) const {
    constexpr int kSteps = dim / 16;
    const int lane = lane_of_warp();
    const unsigned char* const k_row = keys + Rows::at(key_of_matrix(), lane / 16 * kSteps);
    const unsigned char* const q_row =
        q + Rows::at(lane % 8 % n_rows, lane / 8 % 2 * kSteps + lane / 16);
    std::uint32_t rows[4];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step % 2 == 0) {  // after the last step: loaded, never used
        load_matrices(rows, q_row + 16 * (step + 1 < kSteps ? step : kSteps - 2));
      }
      const bool is_second = step % 2 != 0 || step + 1 == kSteps;
      std::uint32_t a[4] = {rows[is_second ? 2 : 0], 0, rows[is_second ? 3 : 1], 0}, b[4];
      load_matrices(b, k_row + 16 * step);
      multiply_rotated(step, a, b, scores);
    }
  }

  // Any pairs, register by register.
  __device__ void multiply_any(const unsigned char* keys, Scores<1, kStepKeys>& scores) const {
    const int lane = lane_of_warp();
    const RotatedPlaces places(call);
    const unsigned char* const k_row = keys + Rows::at(key_of_matrix(), lane / 16);
    const unsigned char* const q_row = q + Rows::at(lane % 16 % n_rows, lane / 16);
#pragma unroll
    for (int step = 0; step < dim / 16; ++step) {
      std::uint32_t a[4], b[4];
      if (step < places.rotated) {
        gather(places, step, keys, a, b);
        multiply_rotated(step, a, b, scores);
      } else {
        load_matrices(a, q_row + 32 * step);
        load_matrices(b, k_row + 32 * step);
        mma_16x8x16(scores[0][0], a, {b[0], b[2]}, T());
        mma_16x8x16(scores[0][1], a, {b[1], b[3]}, T());
      }
    }
  }
  __device__ void gather(const RotatedPlaces& places, int step, const unsigned char* keys,
                         std::uint32_t (&a)[4], std::uint32_t (&b)[4]) const {
    const int g = lane_of_warp() / 4, t = lane_of_warp() % 4;
    const unsigned char* const rows[4] = {q + Rows::at(g % n_rows, 0),
                                          q + Rows::at((g + 8) % n_rows, 0), keys + Rows::at(g, 0),
                                          keys + Rows::at(kStepKeys - 1 - g, 0)};
    Halves first[4], next[4];
    if (call.half_split) {
      const int at = 2 * places.first(step, t), other = 2 * places.second(step, t);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        first[i] = *reinterpret_cast<const std::uint32_t*>(rows[i] + at);
        next[i] = *reinterpret_cast<const std::uint32_t*>(rows[i] + other);
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const auto x = *reinterpret_cast<const uint2*>(rows[i] + 8 * (4 * step + t));
        first[i] = __byte_perm(x.x, x.y, 0x5410);
        next[i] = __byte_perm(x.x, x.y, 0x7632);
      }
    }
    a[0] = first[0], a[1] = first[1], a[2] = next[0], a[3] = next[1];
    b[0] = first[2], b[1] = first[3], b[2] = next[2], b[3] = next[3];
  }
};

// hide() for scores in this key order. Few: there are at most 8 rows.
template <bool few>
__device__ void hide_rotated(const QueryRows& rows, const KeyTileLoop& loop, int k0,
                             Scores<1, kStepKeys>& scores) {
#pragma unroll
  for (int side = 0; side < (few ? 1 : 2); ++side) {
    const int row = 8 * side + lane_of_warp() / 4;
    const auto seen = static_cast<std::uint32_t>(loop.seen(rows.query(row), k0));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int column = 2 * (lane_of_warp() % 4) + i;
      if ((seen >> column & 1u) == 0) scores[0][0][2 * side + i] = -INFINITY;
      if ((seen >> (kStepKeys - 1 - column) & 1u) == 0) scores[0][1][2 * side + i] = -INFINITY;
    }
  }
}

// update() for at most 8 rows: the rows of side 1 do not exist.
template <int dim>
__device__ void update_side0(float factor, Scores<1, kStepKeys>& scores, WarpRows<1, dim>& state) {
  float(&low)[4] = scores[0][0], (&high)[4] = scores[0][1];
  const float before = state.largest[0][0];
  const float most = tile::quad_max(fmaxf(fmaxf(low[0], low[1]), fmaxf(high[0], high[1])));
  const float largest = fmaxf(before, factor * most);
  const float origin = largest == -INFINITY ? 0.f : largest;  // nothing seen: not inf - inf
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    low[i] = fast_exp2(fmaf(factor, low[i], -origin));
    high[i] = fast_exp2(fmaf(factor, high[i], -origin));
  }
  const float rescale = fast_exp2(before - origin);
  state.largest[0][0] = largest;
  state.sum[0][0] = state.sum[0][0] * rescale + ((low[0] + low[1]) + (high[0] + high[1]));
  if (__ballot_sync(0xffffffffu, largest != before) == 0) return;
#pragma unroll
  for (int n = 0; n < dim / 8; ++n) {
    state.out[0][n][0] *= rescale;
    state.out[0][n][1] *= rescale;
  }
}

// sums += P V, with weights in this key order. Few: there are at most 8 rows.
template <typename T, bool few, int dim>
__device__ void multiply_rotated_values(const Scores<1, kStepKeys>& weights,
                                        const unsigned char* values, WarpRows<1, dim>& state) {
  std::uint32_t a[4] = {};
#pragma unroll
  for (int i = 0; i < 4; i += few ? 2 : 1) {
    const float* pair = &weights[0][i / 2][i % 2 * 2];
    a[i] = pack(pair[0], pair[1], T());
  }
  const int lane = lane_of_warp();
  const int key = lane / 8 % 2 == 0 ? lane % 8 : kStepKeys - 1 - lane % 8;
  const unsigned char* const row = values + PaddedRows<dim>::at(key, lane / 16);
#pragma unroll
  for (int n = 0; n < dim / 8; n += 2) {
    std::uint32_t b[4];
    load_matrices_transposed(b, row + 16 * n);
    mma_16x8x16(state.out[0][n], a, {b[0], b[1]}, T());
    mma_16x8x16(state.out[0][n + 1], a, {b[2], b[3]}, T());
  }
}

}  // namespace tessera::cuda::split
