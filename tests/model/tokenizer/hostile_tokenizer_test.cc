// Files that are allowed, and texts chosen to make them slow: linear time, or a refusal.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/bpe.h"
#include "support/refusal.h"
#include "support/tokenizer_files.h"
#include "tessera/tokenizer.h"

namespace tessera::test {
namespace {

using Json = nlohmann::json;

Json small() {
  return {
      {"model",
       {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {" ", 2}}}, {"merges", Json::array()}}}};
}

Tokenizer tokenizer_of(const Json& json) { return Tokenizer::from_json(json.dump(), "t.json"); }

Json regex(const char* pattern) { return {{"Regex", pattern}}; }

std::string repeated(std::string_view unit, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

const std::string kTooManySteps =
    "the pattern takes more than 100 steps for each byte of this text";

TEST(HostileTokenizer, StepsAreCountedOverAllPiecesOfAText) {
  // Cut into pieces of 500 bytes first: none alone takes more than the steps that every text has.
  Json json = small();
  json["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "Removed"}},
        {{"type", "Split"}, {"pattern", regex("a*b|a")}, {"behavior", "Isolated"}}}}};
  const std::string piece = std::string(500, 'a') + " ";
  EXPECT_TRUE(refuses([&] { tokenizer_of(json).encode(repeated(piece, 1 << 17)); },
                      "t.json: the pre_tokenizer: " + kTooManySteps, ErrorCode::unsupported));
  EXPECT_EQ(tokenizer_of(json).encode(repeated("aaaa ", 1 << 14)).size(), 4 * 3277u);
}

TEST(HostileTokenizer, StepsAreCountedOverAllTokensThatAreDecoded) {
  Json json = small();
  json["model"]["vocab"][std::string(500, 'a')] = 3;
  json["decoder"] = {{"type", "Replace"}, {"pattern", regex("a*b|a")}, {"content", "x"}};
  const Tokenizer tokenizer = tokenizer_of(json);
  const std::vector<std::int32_t> ids(200, 3);
  const std::string expected = "t.json: the decoder: " + kTooManySteps;
  EXPECT_TRUE(refuses([&] { tokenizer.decode(ids); }, expected, ErrorCode::unsupported));
  StreamDecoder stream(tokenizer);
  EXPECT_TRUE(refuses(
      [&] {
        for (const std::int32_t id : ids) stream.push(id);
      },
      expected, ErrorCode::unsupported));
}

TEST(HostileTokenizer, AddedTokensThatBeginEverywhereAreRefusedInLinearTime) {
  model::TokenFinder finder;
  finder.add(std::string(400, 'a') + "b", {.id = 5});
  const std::string text(1 << 16, 'a');
  model::Effort effort;
  EXPECT_TRUE(refuses([&] { (void)finder.split(text, {}, effort); },
                      "the added tokens take more than 100 steps for each byte of this text",
                      ErrorCode::unsupported));
  EXPECT_LT(effort.spent(), 102 * text.size());
}

// Each of them takes the white space behind it, which is made of them.
TEST(HostileTokenizer, AddedTokensOfWhiteSpaceTakeLinearTime) {
  Json json = small();
  json["added_tokens"] = {{{"id", 9}, {"content", "\t"}, {"rstrip", true}, {"normalized", false}},
                          {{"id", 8}, {"content", "\n"}, {"lstrip", true}, {"normalized", false}}};
  const Tokenizer tokenizer = tokenizer_of(json);
  for (const char* unit : {"\t", "\t ", "\t\n", "\n "}) {
    const std::string text = repeated(unit, 1 << 19);
    const auto start = std::chrono::steady_clock::now();
    const auto ids = tokenizer.encode(text);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(took.count(), 2.0 * kSlowdown) << Json(unit);
    EXPECT_GE(ids.size(), text.size() / 2);
  }
}

TEST(HostileTokenizer, ATextThatGrowsTooMuchIsRefused) {
  Json json = small();
  json["normalizer"] = {
      {"type", "Replace"}, {"pattern", regex("")}, {"content", std::string(100, 'a')}};
  const Tokenizer tokenizer = tokenizer_of(json);
  EXPECT_EQ(tokenizer.encode("b").size(), 201u);
  EXPECT_TRUE(refuses([&] { tokenizer.encode(std::string(10'000, 'b')); },
                      "the tokenizer makes more than 64 bytes of each byte of this text before it "
                      "is cut into tokens",
                      ErrorCode::unsupported));
}

// The longest that an honest file makes of a text is accepted.
TEST(HostileTokenizer, ACompatibilityFormOfAnyTextIsAccepted) {
  Json json = small();
  json["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "NFKC"}},
        {{"type", "Prepend"}, {"prepend", "▁"}},
        {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}}}};
  EXPECT_TRUE(tokenizer_of(json).encode(repeated("\uFDFA", 1 << 16)).empty());
  json["normalizer"] = {{"type", "NFKC"}};
  json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  EXPECT_TRUE(tokenizer_of(json).encode(repeated("\uFDFA", 1 << 16)).empty());
}

// Pairs that all belong to one place of the table would take quadratic time.
TEST(HostileTokenizer, MergesThatCollideAreRefused) {
  constexpr std::uint64_t kPlaces = 4095;  // of a table for 2000 merges, less one
  std::vector<model::Merge> merges;
  for (std::int32_t left = 0; merges.size() < 2000; ++left) {
    for (std::int32_t right = 0; right < 4096 && merges.size() < 2000; ++right) {
      if ((model::MergeTable::hash(left, right) & kPlaces) == 0) merges.push_back({left, right, 0});
    }
  }
  EXPECT_TRUE(refuses([&] { const model::MergeTable table(merges, "t.json"); },
                      "t.json: more than 1000 merges have one hash", ErrorCode::file));
  merges.resize(900);
  const model::MergeTable table(merges, "t.json");
  EXPECT_EQ(table.rank(merges[899].left, merges[899].right), 899u);
  EXPECT_EQ(table.rank(1, -1), model::MergeTable::kNone);
}

}  // namespace
}  // namespace tessera::test
