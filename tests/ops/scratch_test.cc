// With a counting workspace, an op reports the memory it needs. The figure must suffice for the
// given shapes and for all smaller ones, and must not be much more than the largest need among
// them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <tuple>
#include <vector>

#include "core/workspace.h"
#include "support/devices.h"
#include "tessera/attention.h"
#include "tessera/linear.h"
#include "tessera/quant.h"
#include "tessera/select.h"

namespace tessera::test {
namespace {

class ScratchTest : public DeviceTest {
 protected:
  // A tensor of zeros that lives as long as the test.
  Tensor zeros(DType dtype, std::initializer_list<std::int64_t> shape) {
    const Buffer& buffer = buffers_.emplace_back(dtype, shape, GetParam());
    const std::vector<char> bytes(static_cast<std::size_t>(buffer.bytes()));
    copy_bytes(ctx(), buffer.data(), GetParam(), bytes.data(), Device::cpu(), buffer.bytes());
    return buffer.tensor(dtype, shape);
  }
  static std::int64_t counted(Context& context, const std::function<void()>& call) {
    const Workspace::Count count(context.workspace());
    call();
    return count.peak_bytes();
  }
  static std::int64_t taken(Context& context, const std::function<void()>& call) {
    context.workspace().reset_peak();
    call();
    return context.workspace_peak_bytes();
  }
  // cuBLASLt may ask for up to 32 MiB, but does not for matrices as small as these.
  static std::int64_t library_scratch() { return GetParam().is_cpu() ? 0 : 33 << 20; }

 private:
  std::vector<Buffer> buffers_;
};
INSTANTIATE_TEST_SUITE_P(Devices, ScratchTest, testing::ValuesIn(test_devices()), device_name);

TEST_P(ScratchTest, OfAttentionCoversFewerQueriesAndFewerKeys) {
  const std::unique_ptr<Context> context = this->context(3);
  constexpr std::int64_t kQueries = 70, kKeys = 8300, kDim = 8;  // more than 64 chunks of 128
  const std::tuple<DType, int, int> calls[] = {{DType::f32, 3, 3},  {DType::f32, 4, 1},
                                               {DType::f32, 20, 1}, {DType::f16, 3, 3},
                                               {DType::f16, 4, 1},  {DType::f16, 20, 1}};
  for (const auto& [dtype, heads, kv_heads] : calls) {
    SCOPED_TRACE(heads);
    const Tensor q = zeros(dtype, {1, kQueries, heads, kDim});
    const Tensor out = zeros(dtype, {1, kQueries, heads, kDim});
    const Tensor k = zeros(dtype, {1, kKeys, kv_heads, kDim});
    const auto run = [&](std::int64_t queries, std::int64_t keys) {
      attention(*context, {.q = q.slice(1, 0, queries),
                           .k = k.slice(1, 0, keys),
                           .v = k.slice(1, 0, keys),
                           .out = out.slice(1, 0, queries)});
    };
    const std::int64_t said = counted(*context, [&] { run(kQueries, kKeys); });
    std::int64_t most = 0;
    for (const std::int64_t queries : {1, 2, 4, 5, 16, 17, 33, 70}) {
      for (const std::int64_t keys : {1, 128, 129, 1000, 8192, 8193, 8300}) {
        const std::int64_t bytes = taken(*context, [&] { run(queries, keys); });
        EXPECT_LE(bytes, said) << queries << " queries, " << keys << " keys";
        most = std::max(most, bytes);
      }
    }
    EXPECT_LE(said, 2 * most + Buffer::kAlignment);  // which nothing is rounded up to
  }
}

TEST_P(ScratchTest, OfLinearCoversFewerRows) {
  const std::unique_ptr<Context> context = this->context(3);
  constexpr std::int64_t kRows = 70, kOut = 130, kIn = 96;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor matrix = zeros(dtype, {kOut, kIn});
    const Tensor x = zeros(DType::f32, {kRows, kIn}), out = zeros(DType::f32, {kRows, kOut});
    const Tensor bias = zeros(DType::f32, {kOut});
    const PackedWeight nvfp4 = quantize(*context, matrix, {.format = Format::nvfp4});
    const PackedWeight fp8 = quantize(*context, matrix, {.format = Format::fp8});
    const PackedWeight prepared = prepare(*context, nvfp4.weight);
    const Weight weights[] = {Weight::dense(matrix), nvfp4.weight, fp8.weight, prepared.weight};
    for (const Weight& weight : weights) {
      for (const Activations activations : {Activations::exact, Activations::int8}) {
        for (const bool gated : {false, true}) {
          SCOPED_TRACE(to_string(weight) + (gated ? ", gated" : ""));
          context->set_activations(activations);
          const auto run = [&](std::int64_t rows) {
            const Tensor some = x.slice(0, 0, rows), to = out.slice(0, 0, rows);
            if (gated) {
              gated_linear(*context,
                           {.x = some, .gate = weight, .up = Weight::dense(matrix), .out = to});
            } else {
              linear(*context, {.x = some, .weight = weight, .bias = bias, .out = to});
            }
          };
          const std::int64_t said = counted(*context, [&] { run(kRows); });
          std::int64_t most = 0;
          for (std::int64_t rows = 1; rows <= kRows; ++rows) {
            const std::int64_t bytes = taken(*context, [&] { run(rows); });
            EXPECT_LE(bytes, said) << rows << " rows";
            most = std::max(most, bytes);
          }
          EXPECT_LE(said, 2 * most + library_scratch());
        }
      }
    }
  }
}

TEST_P(ScratchTest, OfTopKCoversFewerRows) {
  constexpr std::int64_t kRows = 5, kWidth = 20000, kMost = 7;
  const Tensor x = zeros(DType::f32, {kRows, kWidth});
  const Tensor values = zeros(DType::f32, {kRows, kMost});
  const Tensor indices = zeros(DType::i32, {kRows, kMost});
  const auto run = [&](std::int64_t rows) {
    top_k(ctx(), {.x = x.slice(0, 0, rows),
                  .values = values.slice(0, 0, rows),
                  .indices = indices.slice(0, 0, rows)});
  };
  const std::int64_t said = counted(ctx(), [&] { run(kRows); });
  for (std::int64_t rows = 1; rows <= kRows; ++rows) {
    EXPECT_LE(taken(ctx(), [&] { run(rows); }), said) << rows << " rows";
  }
}

}  // namespace
}  // namespace tessera::test
