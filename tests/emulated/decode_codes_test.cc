// A warp of cuda.hopper.decode over keys and values of 8 bits: queries as digits or scaled f16, the
// running softmax, and the transposed sums. The kernel around it needs a Hopper GPU. Compiled as a
// kernel is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "core/half.h"
#include "cuda/attention/hopper/decode/code_queries.cuh"
#include "cuda/attention/hopper/decode/code_state.cuh"
#include "cuda/attention/hopper/decode/code_values.cuh"
#include "cuda/tile/codes.cuh"
#include "cuda/tile/quad.cuh"
#include "emulated/simt.h"
#include "reference/test_tensor.h"

namespace tessera::cuda::hopper_decode {
namespace {

using emulated::dynamic_shared_memory;
using emulated::run_grid;

constexpr int kSteps = 4, kKeys = kSteps * kWarpKeys;

// Rows of codes as they lie in the ring, without a swizzle.
template <int dim>
struct PlainRows {
  static constexpr int kRowBytes = dim;
  static int at(int row, int byte) { return row * dim + byte; }
};

// Rows of queries of every kind, and keys and values whose scales grow from step to step.
template <typename T, int dim, DType stored, int rows>
struct Inputs {
  std::vector<double> q;               // [rows, dim]
  std::vector<std::uint8_t> codes[2];  // of keys and values, [kKeys, dim]
  std::vector<float> scales[2];        // [kKeys]
  std::vector<unsigned char> memory = std::vector<unsigned char>(rows * PaddedRows<dim>::kRowBytes);

  explicit Inputs(float query_size) : q(rows * dim) {
    const reference::Array normal = test::random_normal({rows, dim}, 1);
    for (int r = 0; r < rows; ++r) {
      for (int d = 0; d < dim; ++d) {
        double x = normal.at(r, d) * query_size;
        if (r == 1) x = 0;                      // a row of nothing
        if (r == 2) x *= std::exp2(-(d % 24));  // elements of all sizes
        T element;
        if constexpr (std::is_same_v<T, Half>) {
          element = to_f16(static_cast<float>(x));
        } else {
          element = to_bf16(static_cast<float>(x));
        }
        q[static_cast<std::size_t>(r * dim + d)] = to_float(element);
        std::memcpy(&memory[static_cast<std::size_t>(r * PaddedRows<dim>::kRowBytes + 2 * d)],
                    &element.bits, 2);
      }
    }
    for (int kind = 0; kind < 2; ++kind) {
      const reference::Array sizes =
          test::random_normal({kKeys}, static_cast<std::uint64_t>(3 + kind));
      for (int j = 0; j < kKeys; ++j) {
        for (int d = 0; d < dim; ++d) {
          int code = (j * 7919 + d * 104729 + kind * 31 + j * d) % 256;
          if (stored == DType::f8e4m3 && code % 128 == 127) --code;  // NaN
          codes[kind].push_back(static_cast<std::uint8_t>(code));
        }
        const double growth = kind == 0 ? 1 : std::exp2(5 * (j / kWarpKeys));
        scales[kind].push_back(static_cast<float>(std::exp2(sizes.at(j)) * growth / 200));
      }
    }
    scales[1][3] = 0.f;
  }
  double decoded(int kind, int j, int d) const {
    const std::uint8_t code = codes[kind][static_cast<std::size_t>(j * dim + d)];
    const double number = stored == DType::i8 ? static_cast<double>(static_cast<std::int8_t>(code))
                                              : static_cast<double>(to_f32(E4M3{code}));
    return number * static_cast<double>(scales[kind][static_cast<std::size_t>(j)]);
  }
  double score(int r, int j) const {
    double sum = 0;
    for (int d = 0; d < dim; ++d)
      sum += q[static_cast<std::size_t>(r * dim + d)] * decoded(0, j, d);
    return sum;
  }
};

// Row r does not see key j.
bool is_hidden(int r, int j) { return (r + j) % 5 == 0 || (r == 4 && j < kWarpKeys); }

struct Results {
  std::vector<double> out, lse;  // [rows, dim], [rows]; lse as an exponent of 2
};

// The whole of a warp's work over all keys.
template <typename T, int dim, DType stored, int tiles>
Results attend(const Inputs<T, dim, stored, 8 * tiles>& in, float q_factor) {
  constexpr int kRows = 8 * tiles;
  Results results{std::vector<double>(kRows * dim), std::vector<double>(kRows)};
  run_grid(dim3(1), dim3(32), 0, [&] {
    const int g = lane_of_warp() / 4, t = lane_of_warp() % 4;
    CodeQueries<T, dim, stored, tiles> queries;
    queries.load(in.memory.data());
    CodeState<dim, tiles> state;
    state.clear();
    float factor[tiles];
    for (int m = 0; m < tiles; ++m) factor[m] = q_factor * queries.unit[m];
    for (int k0 = 0; k0 < kKeys; k0 += kWarpKeys) {
      KeyNumbers scales[2];
      for (int kind = 0; kind < 2; ++kind) {
        for (int n = 0; n < kEights; ++n) {
          for (int i = 0; i < 2; ++i) {
            scales[kind][n][i] = in.scales[kind][static_cast<std::size_t>(k0 + 8 * n + 2 * t + i)];
          }
        }
      }
      KeyWords<dim> keys;
      keys.template read<PlainRows<dim>>(&in.codes[0][static_cast<std::size_t>(k0 * dim)], 0);
      CodeScores<tiles> scores;
      queries.multiply(keys, scales[0], scores);
      for (int m = 0; m < tiles; ++m) {
        for (int n = 0; n < kEights; ++n) {
          for (int i = 0; i < 2; ++i) {
            if (is_hidden(8 * m + g, k0 + 8 * n + 2 * t + i)) scores[m][n][i] = -INFINITY;
          }
        }
      }
      std::uint32_t weights[tiles][kEights];
      state.weigh(factor, scores, scales[1], weights);
      for (int u = 0; u < kWarpKeys / 16; ++u) {
        ValueWords<dim> values;
        const int first = (k0 + 16 * u) * dim;
        values.template read<PlainRows<dim>>(&in.codes[1][static_cast<std::size_t>(first)], 0);
        values.template add<stored>(u, weights, state.sums);
      }
    }
    for (int m = 0; m < tiles; ++m) {
      const float sum = tile::quad_sum(state.weights[m]);
      results.lse[static_cast<std::size_t>(8 * m + g)] = state.origin[m] + std::log2(sum);
      for (int i = 0; i < 2; ++i) {
        const int row = 8 * m + 2 * t + i;
        const float of_row = __shfl_sync(~0u, sum, 8 * t + 4 * i);
        for (int piece = 0; piece < dim / 8; ++piece) {
          const int d = split::ValueCodes<dim>::element(piece, g);
          results.out[static_cast<std::size_t>(row * dim + d)] =
              state.sums[m][piece / 2][piece % 2 * 2 + i] / of_row / CodePairs<Half, stored>::kUnit;
        }
      }
    }
  });
  return results;
}

template <typename T, int dim, DType stored, int tiles>
void check_warp() {
  constexpr int kRows = 8 * tiles;
  SCOPED_TRACE(testing::Message() << "dim " << dim << " " << name(stored) << " tiles " << tiles);
  // As a kernel's factor: scores of a few units, as exponents of 2.
  const float q_factor = 1.4426950408889634f / std::sqrt(static_cast<float>(dim));
  const Inputs<T, dim, stored, kRows> in(stored == DType::i8 ? 1.f : 0.1f);
  const Results got = attend<T, dim, stored, tiles>(in, q_factor);
  for (int r = 0; r < kRows; ++r) {
    std::vector<double> weights(kKeys);
    double largest = -INFINITY, sum = 0;
    for (int j = 0; j < kKeys; ++j) {
      weights[static_cast<std::size_t>(j)] =
          is_hidden(r, j) ? -INFINITY : in.score(r, j) * static_cast<double>(q_factor);
      largest = std::max(largest, weights[static_cast<std::size_t>(j)]);
    }
    for (double& w : weights) sum += w = std::exp2(w - largest);
    EXPECT_NEAR(got.lse[static_cast<std::size_t>(r)], largest + std::log2(sum), 2e-3) << r;
    for (int d = 0; d < dim; ++d) {
      double expected = 0, size = 0;
      for (int j = 0; j < kKeys; ++j) {
        const double part = weights[static_cast<std::size_t>(j)] / sum * in.decoded(1, j, d);
        expected += part, size += std::abs(part);
      }
      // Weights are f16: 2^-11 of each.
      EXPECT_NEAR(got.out[static_cast<std::size_t>(r * dim + d)], expected, 1.5e-3 * size)
          << r << " " << d;
    }
  }
}

template <typename T, int dim>
void check_dim() {
  check_warp<T, dim, DType::i8, 1>();
  check_warp<T, dim, DType::i8, 2>();
  check_warp<T, dim, DType::f8e4m3, 1>();
  check_warp<T, dim, DType::f8e4m3, 2>();
}

TEST(DecodeCodesTest, AWarpAttends) {
  check_dim<Half, 64>();
  check_dim<BFloat16, 64>();
  check_dim<Half, 80>();
  check_dim<BFloat16, 80>();
  check_dim<Half, 128>();
  check_dim<BFloat16, 128>();
}

// A query that is not finite spoils its own row, and hidden keys stay hidden from it.
template <DType stored>
void check_spoiled(float bad) {
  constexpr int kDim = 64;
  Inputs<BFloat16, kDim, stored, 8> in(1.f);
  const BFloat16 element = to_bf16(bad);
  std::memcpy(&in.memory[5 * PaddedRows<kDim>::kRowBytes + 2 * 17], &element.bits, 2);
  const Results got = attend<BFloat16, kDim, stored, 1>(in, 0.1f);
  for (int r = 0; r < 8; ++r) {
    EXPECT_EQ(std::isnan(got.out[static_cast<std::size_t>(r * kDim + 3)]), r == 5) << r;
  }
}

TEST(DecodeCodesTest, ABadQuerySpoilsItsRowAlone) {
  check_spoiled<DType::i8>(std::numeric_limits<float>::quiet_NaN());
  check_spoiled<DType::i8>(std::numeric_limits<float>::infinity());
  check_spoiled<DType::f8e4m3>(std::numeric_limits<float>::quiet_NaN());
  check_spoiled<DType::f8e4m3>(std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace tessera::cuda::hopper_decode
