// The table of formats, and what a Weight reports about itself.
#include <gtest/gtest.h>

#include <vector>

#include "quant/codec.h"
#include "quant/format_table.h"
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

// Entries that contradict themselves would be read, packed or written wrongly.
TEST(Formats, EveryEntryIsComplete) {
  for (const quant::FormatEntry& entry : quant::packed_formats()) {
    SCOPED_TRACE(entry.info.name);
    EXPECT_EQ(&quant::entry(entry.info.format), &entry);
    EXPECT_TRUE(entry.decode_row && entry.encode_row);
    EXPECT_EQ(size_of(entry.code_dtype), 1);
    EXPECT_TRUE(quant::accepts_group(entry.info.format, entry.info.default_group));
    EXPECT_EQ(quant::accepts_group(entry.info.format, 0), !entry.has_fixed_blocks());
    ASSERT_FALSE(entry.stored.empty());
    for (const quant::StoredForm& form : entry.stored) {
      SCOPED_TRACE(form.name);
      EXPECT_EQ(form.tensor_scale.empty(), entry.tensor_scale == nullptr);
      EXPECT_FALSE(form.method.empty() || form.type.empty() || form.codes.empty());
      EXPECT_TRUE(!form.words || entry.zeros);  // words are read with zero points
    }
  }
  EXPECT_EQ(quant::names_of([](const quant::FormatEntry& e) { return e.zeros; }), "int4 and int8");
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
