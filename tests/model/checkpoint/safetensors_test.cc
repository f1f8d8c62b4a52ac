#include "model/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "support/files.h"
#include "support/refusal.h"
#include "support/safetensors_file.h"

namespace tessera::model {
namespace {

using test::bytes_of;
using test::refuses;
using test::safetensors_file;

SafetensorsHeader parse(const std::string& file) { return parse_safetensors(bytes_of(file), "f"); }

TEST(ParseSafetensors, ListsTensorsInTheOrderOfTheirData) {
  const std::string file = safetensors_file(
      R"({"__metadata__": {"format": "pt"},
          "b": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]},
          "a": {"dtype": "BF16", "shape": [], "data_offsets": [8, 10]}})",
      "01234567xy");
  const SafetensorsHeader header = parse(file);
  ASSERT_EQ(header.tensors.size(), 2U);
  EXPECT_EQ(to_string(header.tensors[0]), "b F32[1, 2]");
  EXPECT_EQ(to_string(header.tensors[1]), "a BF16[]");
  EXPECT_EQ(std::memcmp(header.tensors[1].data.data(), "xy", 2), 0);
  EXPECT_EQ(header.metadata.at("format"), "pt");
}

TEST(ParseSafetensors, TakesEmptyTensorsAndEmptyFiles) {
  EXPECT_TRUE(parse(safetensors_file("{}", "")).tensors.empty());
  const SafetensorsHeader header =
      parse(safetensors_file(R"({"full": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
                           "none": {"dtype": "F32", "shape": [0, 7], "data_offsets": [0, 0]},
                           "last": {"dtype": "I64", "shape": [2, 0], "data_offsets": [3, 3]}})",
                             "abc"));
  ASSERT_EQ(header.tensors.size(), 3U);
  EXPECT_EQ(header.tensors[0].tensor().numel(), 0);
  EXPECT_EQ(header.tensors[2].tensor().numel(), 0);
}

TEST(ParseSafetensors, CountsDtypesBelowAByte) {
  EXPECT_EQ(parse(safetensors_file(
                      R"({"x": {"dtype": "F4", "shape": [6], "data_offsets": [0, 3]}})", "abc"))
                .tensors.size(),
            1U);
}

TEST(StoredTensor, IsATensorOfTheSameMemory) {
  alignas(8) const std::int64_t values[2] = {1, 2};
  const auto data = std::as_bytes(std::span(values));
  const auto stored = [&](const char* dtype, std::vector<std::int64_t> shape) {
    return StoredTensor{.name = "w", .dtype = dtype, .shape = std::move(shape), .data = data};
  };
  const Tensor tensor = stored("I64", {2, 1}).tensor();
  EXPECT_EQ(to_string(tensor), "i64[2, 1]");
  EXPECT_EQ(tensor.data, values);
  EXPECT_EQ(to_string(stored("F8_E8M0", {16}).tensor()), "u8[16]");
  EXPECT_EQ(to_string(stored("F8_E4M3", {4, 4}).tensor()), "f8e4m3[4, 4]");
  EXPECT_EQ(
      to_string(StoredTensor{.name = "s", .dtype = "F32", .shape = {}, .data = data}.tensor()),
      "f32[1]");
  EXPECT_TRUE(
      refuses([&] { (void)stored("F64", {2}).tensor(); },
              "tensor \"w\" is F64; Tessera reads F32, F16, BF16, F8_E4M3, F8_E8M0, I8, U8, "
              "I32 and I64",
              ErrorCode::unsupported));
  EXPECT_TRUE(refuses(
      [&] {
        (void)stored("I64", {1, 1, 1, 1, 1, 1, 2}).tensor();
      },
      "tensor \"w\" has 7 dimensions; Tessera reads up to 6", ErrorCode::unsupported));
  StoredTensor odd = stored("I32", {1});
  odd.data = data.subspan(2, 4);
  EXPECT_FALSE(is_aligned(odd));
  EXPECT_TRUE(refuses([&] { (void)odd.tensor(); },
                      "tensor \"w\" lies at an address that is not a multiple of 4 bytes",
                      ErrorCode::file));
}

}  // namespace
}  // namespace tessera::model
