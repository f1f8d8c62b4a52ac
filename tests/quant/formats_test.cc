// The table of formats, and what a Weight says of itself.
#include <gtest/gtest.h>

#include <vector>

#include "support/refusal.h"
#include "tessera/weight.h"

namespace tessera::test {
namespace {

TEST(Formats, TableAndNames) {
  std::vector<std::string_view> names;
  for (const FormatInfo& entry : formats()) {
    names.push_back(entry.name);
    EXPECT_EQ(&info(entry.format), &entry);
    EXPECT_EQ(name(entry.format), entry.name);
    EXPECT_EQ(parse_format(entry.name), entry.format);
    EXPECT_FALSE(entry.summary.empty());
  }
  EXPECT_EQ(names, (std::vector<std::string_view>{"nvfp4", "mxfp4", "nf4", "int4", "int8", "fp8"}));
  EXPECT_EQ(parse_format("dense"), Format::dense);
  EXPECT_EQ(name(Format::dense), "dense");
}

TEST(Formats, RefusesWhatIsNone) {
  EXPECT_TRUE(
      refuses([] { parse_format("fp3"); },
              "'fp3' is not a format; use one of dense, nvfp4, mxfp4, nf4, int4, int8, fp8"));
  EXPECT_TRUE(refuses([] { info(static_cast<Format>(99)); },
                      "99 is not the number of a format; the last is 6 (fp8)"));
}

TEST(Formats, DenseWeight) {
  float values[12] = {};
  const Weight weight = Weight::dense(Tensor(values, DType::f32, {3, 4}));
  EXPECT_EQ(weight.out_features, 3);
  EXPECT_EQ(weight.in_features, 4);
  EXPECT_EQ(weight.bytes(), 48);
  EXPECT_EQ(to_string(weight), "f32[3, 4]");
  EXPECT_TRUE(refuses([&] { Weight::dense(Tensor(values, DType::f32, {12})); },
                      "a weight is a matrix [out, in], got f32[12]"));
  EXPECT_FALSE(Weight().defined());
}

}  // namespace
}  // namespace tessera::test
