// The files of tests/data/bad, each wrong in one way, and what is said to each. A file without a
// row here, and a row without a file, fail.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "model/mapped_file.h"
#include "model/safetensors.h"
#include "support/files.h"
#include "tessera/error.h"

namespace tessera::model {
namespace {

namespace fs = std::filesystem;

// The name of a file without its extension, and how the sentence goes on after the file's name.
struct Row {
  const char* file;
  const char* sentence;
};
using Reader = std::function<void(const MappedFile& file, const std::string& where)>;

void expect_refusals(const char* folder, const std::vector<Row>& rows, const Reader& read) {
  std::map<std::string, std::string> expected;
  for (const Row& row : rows) expected[row.file] = row.sentence;
  for (const auto& entry : fs::directory_iterator(test::data_path("bad") / folder)) {
    const std::string name = entry.path().stem().string();
    SCOPED_TRACE(entry.path().string());
    ASSERT_TRUE(expected.contains(name)) << "no row for this file";
    try {
      const MappedFile file(entry.path());
      read(file, entry.path().string());
      ADD_FAILURE() << "was not refused; expected: " << expected[name];
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::file);
      EXPECT_EQ(error.what(), entry.path().string() + expected[name]);
    }
    expected.erase(name);
  }
  for (const auto& [name, sentence] : expected) ADD_FAILURE() << "no file " << name;
}

TEST(BadFiles, SafetensorsAreRefused) {
  const std::vector<Row> rows = {
      {"data_begins_late",
       ": tensor \"x\" begins at byte 1 of the data, it must begin at 0: there is a gap before it"},
      {"data_left_over", ": the tensors end at byte 4 of the data and the file holds 5"},
      {"data_of_no_tensor", ": the tensors end at byte 0 of the data and the file holds 4"},
      {"data_overlaps",
       ": tensor \"y\" begins at byte 3 of the data, it must begin at 4: it overlaps another one"},
      {"data_shared_by_two",
       ": tensor \"y\" begins at byte 0 of the data, it must begin at 4: it overlaps another one"},
      {"data_truncated",
       ": tensor \"y\" ends at byte 8 of the data and the file holds 6; it is truncated, fetch it "
       "again"},
      {"data_with_a_gap",
       ": tensor \"y\" begins at byte 5 of the data, it must begin at 4: there is a gap before it"},
      {"dtype_in_small_letters", ": tensor \"x\": the format has no dtype \"u8\""},
      {"dtype_is_a_number", ": tensor \"x\": dtype is 8, it must be a string"},
      {"dtype_missing", ": tensor \"x\": dtype is missing, it must be a string"},
      {"dtype_unknown", ": tensor \"x\": the format has no dtype \"F7\""},
      {"dtype_with_a_line_break", ": tensor \"x\\x0a\": the format has no dtype \"\\x1b[31m\""},
      {"empty", " is empty"},
      {"empty_tensor_inside_another",
       ": tensor \"y\" begins at byte 2 of the data, it must begin at 4: it overlaps another one"},
      {"five_bytes", ": 5 bytes are too few for a safetensors file, which starts with 8"},
      {"gguf", " is a GGUF file; Tessera reads Hugging Face safetensors"},
      {"git_lfs_pointer",
       " is a Git LFS pointer and not the file itself; fetch it with 'git lfs pull'"},
      {"header_after_a_space", ": the header does not start with '{'; this is no safetensors file"},
      {"header_and_more",
       " (header): not valid JSON at byte 4: unexpected '{'; expected end of input"},
      {"header_half_a_surrogate",
       " (header): not valid JSON at byte 9: invalid string: surrogate U+D800..U+DBFF must be "
       "followed by U+DC00..U+DFFF, expected string literal"},
      {"header_is_an_array", ": the header does not start with '{'; this is no safetensors file"},
      {"header_nested_deep", " (header): JSON nested deeper than 64 levels; no model needs that"},
      {"header_not_closed",
       " (header): not valid JSON at byte 21: unexpected end of input; expected '}'"},
      {"header_not_utf8",
       " (header): not valid JSON at byte 3: invalid string: ill-formed UTF-8 byte, expected "
       "string literal"},
      {"header_number_too_large", " (header): not valid JSON at byte 11: a number is too large"},
      {"key_twice",
       " (header): the key \"dtype\" appears twice in one object; each may appear once"},
      {"length_cuts_the_header",
       " (header): not valid JSON at byte 21: unexpected end of input; expected '}'"},
      {"length_over_63_bits",
       ": the header would have 18446744073709551615 bytes, at most 100000000 are allowed; this is "
       "no safetensors file"},
      {"length_over_the_cap",
       ": the header would have 100000001 bytes, at most 100000000 are allowed; this is no "
       "safetensors file"},
      {"length_past_the_end",
       ": the header has 4096 bytes and the file ends after 64 of them; it is truncated, fetch it "
       "again"},
      {"length_zero", ": the header does not start with '{'; this is no safetensors file"},
      {"metadata_holds_a_number",
       ": __metadata__: \"step\" is not a string; only strings are allowed"},
      {"metadata_is_an_array", ": __metadata__ is an array of 1, it must be an object"},
      {"name_twice", " (header): the key \"x\" appears twice in one object; each may appear once"},
      {"offsets_missing",
       ": tensor \"x\": data_offsets must be an array of at most 64 whole numbers"},
      {"offsets_near_64_bits",
       ": tensor \"x\": data_offsets holds 18446744073709551612; only whole numbers from 0 to 2^63 "
       "- 1 are allowed"},
      {"offsets_negative",
       ": tensor \"x\": data_offsets holds -4; only whole numbers from 0 to 2^63 - 1 are allowed"},
      {"offsets_past_the_end",
       ": tensor \"x\" ends at byte 8 of the data and the file holds 4; it is truncated, fetch it "
       "again"},
      {"offsets_reversed",
       ": tensor \"x\": data_offsets must be where it begins and where it ends"},
      {"offsets_three", ": tensor \"x\": data_offsets must be where it begins and where it ends"},
      {"pytorch_pickle", " is a PyTorch pickle; convert it to safetensors first"},
      {"pytorch_zip", " is a PyTorch pickle; convert it to safetensors first"},
      {"shape_bits_overflow", ": tensor \"x\": the shape [1152921504606846976] is too large"},
      {"shape_ends_inside_a_byte", ": tensor \"x\": F4[7] does not end on a whole byte"},
      {"shape_float",
       ": tensor \"x\": shape holds 4.0; only whole numbers from 0 to 2^63 - 1 are allowed"},
      {"shape_fraction",
       ": tensor \"x\": shape holds 2.5; only whole numbers from 0 to 2^63 - 1 are allowed"},
      {"shape_is_a_number", ": tensor \"x\": shape must be an array of at most 64 whole numbers"},
      {"shape_missing", ": tensor \"x\": shape must be an array of at most 64 whole numbers"},
      {"shape_needs_fewer_bytes", ": tensor \"x\": U8[3] needs 3 bytes, data_offsets give it 4"},
      {"shape_needs_more_bytes", ": tensor \"x\": F32[2] needs 8 bytes, data_offsets give it 4"},
      {"shape_negative",
       ": tensor \"x\": shape holds -4; only whole numbers from 0 to 2^63 - 1 are allowed"},
      {"shape_of_rank_65", ": tensor \"x\": shape must be an array of at most 64 whole numbers"},
      {"shape_over_63_bits",
       ": tensor \"x\": shape holds 9223372036854775808; only whole numbers from 0 to 2^63 - 1 are "
       "allowed"},
      {"shape_over_64_bits",
       ": tensor \"x\": shape holds 1.8446744073709552e+19; only whole numbers from 0 to 2^63 - 1 "
       "are allowed"},
      {"shape_overflows_beside_zero",
       ": tensor \"x\": the shape [4611686018427387904, 4611686018427387904, 0] is too large"},
      {"shape_product_overflows",
       ": tensor \"x\": the shape [4294967296, 4294967296] is too large"},
      {"shape_product_wraps_to_four",
       ": tensor \"x\": the shape [4611686018427387905, 4] is too large"},
      {"shape_text",
       ": tensor \"x\": shape holds \"4\"; only whole numbers from 0 to 2^63 - 1 are allowed"},
      {"tensor_is_a_number", ": tensor \"x\" is 4, it must be an object"},
      {"tensor_is_null", ": tensor \"x\" is null, it must be an object"},
      {"web_page",
       ": the header would have 5789751444030890300 bytes, at most 100000000 are allowed; this is "
       "no safetensors file"},
  };
  expect_refusals("safetensors", rows, [](const MappedFile& file, const std::string& where) {
    (void)parse_safetensors(file.bytes(), where);
  });
}

}  // namespace
}  // namespace tessera::model
