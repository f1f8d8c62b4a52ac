// Pieces of the persistent kernel (src/cuda/decode) that its tests on the emulated GPU cannot
// reach, because there it has one block: how many blocks share weights and rows, and a residual
// stream for which one block alone has no room. Compiled as a kernel is.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "cuda/decode/persistent.cuh"
#include "emulated/simt.h"

namespace tessera::cuda::decode {
namespace {

using emulated::dynamic_shared_memory;
using emulated::run_grid;

// ---- shares -------------------------------------------------------------------------------------

constexpr int kLayers = 2;

// Weights whose units hold their number, and how often each was read.
template <typename Kind>
struct CountedWeights {
  std::vector<char> codes, scales;
  std::vector<int> read;
  int units = 0;

  void resize(int count) {
    units = count;
    codes.resize(static_cast<std::size_t>(count * Kind::kCodeBytes));
    scales.resize(static_cast<std::size_t>(count * Kind::kScaleBytes));
    read.assign(static_cast<std::size_t>(count), 0);
    for (int u = 0; u < count; ++u) {
      std::memcpy(&codes[static_cast<std::size_t>(u * Kind::kCodeBytes)], &u, sizeof(u));
      if (Kind::kScaleBytes == 0) continue;
      std::memcpy(&scales[static_cast<std::size_t>(u * Kind::kScaleBytes)], &u, sizeof(u));
    }
  }
};

// All blocks of a grid read their weights as the kernel does, and list their rows.
template <typename Kind, typename Layer>
class ShareTest {
 public:
  explicit ShareTest(const Call& call) : call_(call) {
    for (int s = 0; s < kStages; ++s) {
      const StageShape& stage = call.stages[s];
      for (int tile = 0; tile < stage.tiles; ++tile) {
        const Piece piece = Layer::piece(call, s, tile);
        const int least = (piece.tile + 1) * stage.parts * stage.units;
        rows_[s][piece.weight].resize(
            static_cast<std::size_t>((piece.tile + 1) * Kind::kRows * stage.parts));
        for (auto& layer : weights_) {
          if (layer[piece.weight].units < least) layer[piece.weight].resize(least);
        }
      }
    }
    for (int l = 0; l < kLayers; ++l) {
      for (int w = 0; w < kMostWeights; ++w) {
        layers_[l].codes[w] = weights_[l][w].codes.data();
        layers_[l].scales[w] = weights_[l][w].scales.data();
      }
    }
  }

  void run(unsigned blocks) {
    run_grid(dim3(blocks), dim3(kThreads), Places<Kind>::kRingBytes, [&] {
      read_weights();
      if (threadIdx.x == 0) list_rows();
    });
    for (const auto& layer : weights_) {
      for (const CountedWeights<Kind>& weight : layer) {
        for (const int times : weight.read) EXPECT_EQ(times, 1);
      }
    }
    for (const auto& stage : rows_) {
      for (const std::vector<int>& rows : stage) {
        for (const int times : rows) EXPECT_EQ(times, 1);
      }
    }
  }

 private:
  void read_weights() {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    WarpShare shares[kStages];
    for (int s = 0; s < kStages; ++s) {
      const StageShape& stage = call_.stages[s];
      shares[s] = WarpShare(stage, BlockShare(stage), Kind::kDepth, warp);
    }
    auto* rings = static_cast<char*>(dynamic_shared_memory());
    WeightRing<Kind, Layer> ring(call_, layers_, shares,
                                 rings + warp * Kind::kUnits * Kind::kUnitBytes, lane, true);
    for (int l = 0; l < kLayers; ++l) {
      for (int i = 0; i < kStages; ++i) {
        WarpShare share = shares[Layer::stage(i)];
        const StageShape& stage = call_.stages[Layer::stage(i)];
        for (; share.count > 0; --share.count) {
          const Piece piece = Layer::piece(call_, Layer::stage(i), share.tile);
          const int expected = (piece.tile * stage.parts + share.part) * stage.units + share.unit;
          ASSERT_GT(ring.find_run(), 0);
          const typename Kind::Unit unit = ring.take();
          ring.count(1);
          if (lane == 0) {
            int code = -1, scale = expected;
            std::memcpy(&code, &unit, sizeof(code));
            if constexpr (Kind::kScaleBytes > 0) scale = static_cast<int>(unit.scales);
            ASSERT_EQ(code, expected);
            ASSERT_EQ(scale, expected);
            ++weights_[l][piece.weight].read[static_cast<std::size_t>(code)];
          }
          if (++share.unit == stage.units) share.next_task(stage, Kind::kDepth);
        }
      }
    }
    wait_for_copies<0>();
  }
  void list_rows() {
    for (int s = 0; s < kStages; ++s) {
      const BlockShare share(call_.stages[s]);
      const int count = share.tasks * Kind::kRows, together = call_.stages[s].together;
      for (int i = 0; i < count; ++i) {
        const Row row = row_of<Kind, Layer>(call_, s, share, i);
        ++rows_[s][row.weight][static_cast<std::size_t>(row.n * call_.stages[s].parts + row.part)];
        // Gate and up of a row meet.
        if (together == 1 || i >= count / 2) continue;
        const Row other = row_of<Kind, Layer>(call_, s, share, count / 2 + i);
        EXPECT_EQ(row.n, other.n);
        EXPECT_EQ(row.weight, int{kUp});
        EXPECT_EQ(other.weight, int{kUpWeight});
      }
    }
  }

  const Call& call_;
  LayerWeights layers_[kLayers] = {};
  CountedWeights<Kind> weights_[kLayers][kMostWeights];
  std::vector<int> rows_[kStages][kMostWeights];
};

template <typename Kind>
void check_shares() {
  for (const unsigned blocks : {1u, 3u, 7u, 40u}) {
    SCOPED_TRACE(blocks);
    const auto call = std::make_unique<Call>();
    call->layers = kLayers;
    call->stages[kQkv] = {.tiles = 10 + 2 * 3, .parts = 1, .units = 3};
    call->q_tiles = 10;
    call->kv_tiles = 3;
    call->stages[kUp] = {.tiles = 2 * 11, .parts = 1, .units = 3, .together = 2};
    call->stages[kDown] = {.tiles = 5, .parts = 4, .units = 2};
    call->stages[kOutput] = {.tiles = 5, .parts = 2, .units = 7};
    ShareTest<Kind, SerialLayer>(*call).run(blocks);
    call->stages[kUp].together = 1;
    ShareTest<Kind, ParallelLayer>(*call).run(blocks);
  }
}

TEST(DecodeSharesTest, EveryUnitAndRowBelongsToOneBlock) {
  check_shares<RowWeights<Half>>();
  check_shares<TileWeights<Format::nvfp4, Half>>();
}

// ---- the residual stream ------------------------------------------------------------------------

TEST(DecodeResidualTest, AThreadHasSeveralVectors) {
  constexpr int kHidden = 4096, kParts = 2;
  static_assert(kHidden > 8 * kThreads);
  std::vector<Half> x(kHidden), weight(kHidden), normed(kHidden);
  std::vector<float> sums(kHidden * kParts);
  for (int i = 0; i < kHidden; ++i) {
    const auto at = static_cast<std::size_t>(i);
    x[at] = from_f32<Half>(static_cast<float>(i % 37) / 8.f - 2.f);
    weight[at] = from_f32<Half>(static_cast<float>(i % 11) / 4.f - 1.f);
    for (std::size_t p = 0; p < kParts; ++p) {
      sums[p * kHidden + at] = static_cast<float>(i % (13 + 4 * static_cast<int>(p))) / 16.f;
    }
  }
  std::vector<double> expected(kHidden);
  double squares = 0;
  for (std::size_t i = 0; i < kHidden; ++i) {
    expected[i] = double{to_f32(x[i])} + double{sums[i]} + double{sums[kHidden + i]};
    squares += expected[i] * expected[i];
  }

  const auto call = std::make_unique<Call>();
  call->hidden = kHidden;
  call->eps = 0.5f;
  call->x = x.data();
  call->sums = sums.data();
  std::vector<Eight> residual(kHidden / 8);
  std::vector<float2> partial(kWarps);
  run_grid(dim3(1), dim3(kThreads), 0, [&] {
    Residual<Half, SerialLayer::kVectors> stream(*call, residual.data());
    stream.start(call->x);
    const NormVectors<SerialLayer::kVectors> norm(*call, weight.data());
    stream.add_sums(kParts);
    stream.rms_norm(norm, partial.data(), normed.data());
    stream.store();
  });
  const double inverse = 1 / std::sqrt(squares / kHidden + 0.5);
  for (std::size_t i = 0; i < kHidden; ++i) {
    ASSERT_NEAR(to_f32(x[i]), expected[i], 1e-3 * std::abs(expected[i]));
    const double value = expected[i] * inverse * double{to_f32(weight[i])};
    ASSERT_NEAR(to_f32(normed[i]), value, 1e-3 * std::abs(value));
  }
}

}  // namespace
}  // namespace tessera::cuda::decode
