// Partial results of attention against float64: merged in any order, they are the result over all
// keys; parts over no key change nothing.
#include "ops/partial_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "reference/parity.h"
#include "reference/test_tensor.h"
#include "support/devices.h"
#include "support/refusal.h"

namespace tessera::test {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();
constexpr std::int64_t kBatch = 2, kRows = 5, kHeads = 3;

struct Part {
  Array out, lse;  // [batch, rows, heads, dim], [batch, heads, rows]
};

// lse of very different sizes, and rows over no key.
Part random_part(std::int64_t dim, std::uint64_t seed) {
  Part part{random_normal({kBatch, kRows, kHeads, dim}, seed),
            random_normal({kBatch, kHeads, kRows}, seed + 100, 40.0)};
  part.lse.at(0, 1, seed % kRows) = kNothing;
  for (std::int64_t b = 0; b < kBatch; ++b) part.lse.at(b, 2, 3) = kNothing;
  return part;
}

// By the definition: a mean weighted by e^lse.
Part merged(const std::vector<Part>& parts) {
  Part result{Array(parts[0].out.shape), Array(parts[0].lse.shape, kNothing)};
  for (std::int64_t b = 0; b < kBatch; ++b) {
    for (std::int64_t h = 0; h < kHeads; ++h) {
      for (std::int64_t row = 0; row < kRows; ++row) {
        double largest = kNothing, sum = 0;
        for (const Part& part : parts) largest = std::max(largest, part.lse.at(b, h, row));
        if (largest == kNothing) continue;
        for (const Part& part : parts) sum += std::exp(part.lse.at(b, h, row) - largest);
        result.lse.at(b, h, row) = largest + std::log(sum);
        for (std::int64_t d = 0; d < parts[0].out.size(3); ++d) {
          for (const Part& part : parts) {
            result.out.at(b, row, h, d) +=
                std::exp(part.lse.at(b, h, row) - largest) / sum * part.out.at(b, row, h, d);
          }
        }
      }
    }
  }
  return result;
}

class PartialSumsTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, PartialSumsTest, testing::ValuesIn(test_devices()), device_name);

TEST_P(PartialSumsTest, MergesToTheResultOverAllKeys) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const std::int64_t dim : {1, 16, 80, 256}) {
      for (const Layout layout : kLayouts) {
        SCOPED_TRACE(std::string(name(dtype)) + " " + std::to_string(dim) + to_string(layout));
        // Two rows more than the parts have: the first and the last stay as they were.
        const TestTensor out =
            TestTensor::poisoned(ctx(), {kBatch, kRows + 2, kHeads, dim}, DType::f32);
        const TestTensor lse = TestTensor::poisoned(ctx(), {kBatch, kHeads, kRows + 2}, DType::f32);
        const PartialSums sums{out, lse};
        clear_partial(ctx(), sums);
        std::vector<Part> parts;
        for (std::uint64_t seed = 1; seed <= 4; ++seed) {
          Part part = random_part(dim, seed);
          const TestTensor part_out(ctx(), part.out, dtype, layout);
          const TestTensor part_lse(ctx(), part.lse, DType::f32, layout);
          merge_partial(ctx(), sums, 1, part_out, part_lse);
          parts.push_back({part_out.read(), part_lse.read()});
        }
        const Part expected = merged(parts);
        const Array actual = out.read(), actual_lse = lse.read();
        for (std::int64_t b = 0; b < kBatch; ++b) {
          for (std::int64_t h = 0; h < kHeads; ++h) {
            for (std::int64_t row = 0; row < kRows + 2; ++row) {
              const bool is_merged = row > 0 && row <= kRows;
              const double wanted = is_merged ? expected.lse.at(b, h, row - 1) : kNothing;
              const double got = actual_lse.at(b, h, row);
              ASSERT_TRUE(got == wanted || std::abs(got - wanted) < 2e-5) << got << " " << wanted;
              for (std::int64_t d = 0; d < dim; ++d) {
                ASSERT_NEAR(actual.at(b, row, h, d),
                            is_merged ? expected.out.at(b, row - 1, h, d) : 0.0, 2e-5);
              }
            }
          }
        }
        EXPECT_TRUE(out.surroundings_intact());
        EXPECT_TRUE(lse.surroundings_intact());
      }
    }
  }
}

TEST_P(PartialSumsTest, AddsToWhatIsThere) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const Layout layout : kLayouts) {
      const std::vector<std::int64_t> shape{kBatch, kRows, kHeads, 80};
      const TestTensor part(ctx(), random_normal(shape, 3), dtype, layout);
      const TestTensor sum(ctx(), random_normal(shape, 4), DType::f32, layout);
      Array expected = sum.read();
      const Array added = part.read();
      for (std::size_t i = 0; i < expected.data.size(); ++i) expected.data[i] += added.data[i];
      add_partial(ctx(), part, sum);
      EXPECT_LT(reference::compare(sum.read(), expected).max_abs, 1e-6);
      EXPECT_TRUE(sum.surroundings_intact());
    }
  }
}

TEST_P(PartialSumsTest, FillsEveryDtypeWithZeros) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const TestTensor tensor = TestTensor::poisoned(ctx(), {3, 257}, dtype);
    fill_zeros(ctx(), tensor);
    for (const double value : tensor.read().data) ASSERT_EQ(value, 0.0);
    EXPECT_TRUE(tensor.surroundings_intact());
  }
}

TEST_P(PartialSumsTest, RefusesRowsThatAreNotThere) {
  const TestTensor out(ctx(), random_normal({1, 4, 2, 8}, 1), DType::f32);
  const TestTensor lse(ctx(), random_normal({1, 2, 4}, 1), DType::f32);
  const TestTensor part(ctx(), random_normal({1, 3, 2, 8}, 1), DType::f32);
  const TestTensor part_lse(ctx(), random_normal({1, 2, 3}, 1), DType::f32);
  EXPECT_TRUE(refuses(
      [&] {
        merge_partial(ctx(), {out, lse}, 2, part, part_lse);
      },
      "merge_partial: rows 2 to 5 are not among the 4 of the sums"));
}

}  // namespace
}  // namespace tessera::test
