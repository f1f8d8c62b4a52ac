// Whole tokenizers give the ids and texts that the `tokenizers` library gives for the same files.
#include "tessera/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "support/files.h"
#include "support/refusal.h"
#include "support/tokenizer_files.h"

namespace tessera::test {
namespace {

using Ids = std::vector<std::int32_t>;

std::string test_name(const testing::TestParamInfo<const char*>& tokenizer) {
  std::string name = tokenizer.param;
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
}

class ExpectedIds : public testing::TestWithParam<const char*> {};

TEST_P(ExpectedIds, EncodeAndDecodeAsTheReferenceDoes) {
  const auto tokenizer = load_tokenizer(GetParam());
  if (!tokenizer) GTEST_SKIP() << why_no_tokenizer(GetParam());
  const std::string expected = std::string("tokenizers/") + GetParam() + ".expected.json";
  const auto rows = nlohmann::json::parse(read_text(data_path(expected)));
  ASSERT_GE(rows.size(), 50u);
  for (const auto& row : rows) {
    const auto text = row["text"].get<std::string>();
    const Ids ids = tokenizer->encode(text, {.add_special = row["add_special_tokens"].get<bool>()});
    EXPECT_EQ(ids, row["ids"].get<Ids>()) << text;
    EXPECT_EQ(tokenizer->decode(ids), row["decoded"].get<std::string>());
    if (row.contains("decoded_without_special")) {
      EXPECT_EQ(tokenizer->decode(ids, true), row["decoded_without_special"].get<std::string>());
    }
  }
}

TEST_P(ExpectedIds, AStreamIsTheWholeText) {
  const auto tokenizer = load_tokenizer(GetParam());
  if (!tokenizer) GTEST_SKIP() << why_no_tokenizer(GetParam());
  const std::string expected = std::string("tokenizers/") + GetParam() + ".expected.json";
  for (const auto& row : nlohmann::json::parse(read_text(data_path(expected)))) {
    const Ids ids = row["ids"].get<Ids>();
    for (const bool skip_special : {false, true}) {
      StreamDecoder stream(*tokenizer, skip_special);
      std::string text;
      for (const std::int32_t id : ids) {
        const std::string part = stream.push(id);
        EXPECT_TRUE(is_utf8(part)) << part;
        text += part;
      }
      text += stream.finish();
      EXPECT_EQ(text, tokenizer->decode(ids, skip_special));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, ExpectedIds,
                         testing::Values("tiny-gpt2", "tiny-llama3", "tiny-qwen", "tiny-llama2",
                                         "tiny-llama2-legacy", "tiny-words", "gpt2", "gpt-neox",
                                         "llama2"),
                         test_name);

TEST(Tokenizer, KnowsItsVocabulary) {
  const Tokenizer tokenizer = *load_tokenizer("tiny-llama2");
  EXPECT_EQ(tokenizer.id_of("<s>"), 1);
  EXPECT_EQ(tokenizer.token(1), "<s>");
  EXPECT_TRUE(tokenizer.is_special(1));
  EXPECT_FALSE(tokenizer.is_special(3));
  EXPECT_EQ(tokenizer.token(3), "<0x00>");
  EXPECT_EQ(tokenizer.id_of("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer.token(-1), "");
  EXPECT_EQ(tokenizer.token(static_cast<std::int32_t>(tokenizer.vocab_size())), "");
  EXPECT_NE(tokenizer.token(static_cast<std::int32_t>(tokenizer.vocab_size()) - 1), "");
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8WithTheOffset) {
  const Tokenizer tokenizer = *load_tokenizer("tiny-gpt2");
  const struct {
    std::string text, expected;
  } cases[] = {
      {"abc\xff", "the text is not UTF-8: byte 3 is 0xFF"},
      {"\xc3", "the text is not UTF-8: byte 0 is 0xC3"},              // unfinished
      {"a\xed\xa0\x80", "the text is not UTF-8: byte 1 is 0xED"},     // a surrogate
      {"\xc0\x80", "the text is not UTF-8: byte 0 is 0xC0"},          // overlong
      {"\xf4\x90\x80\x80", "the text is not UTF-8: byte 0 is 0xF4"},  // above U+10FFFF
      {"ok \xe2\x82\xac \xe2\x82 x", "the text is not UTF-8: byte 7 is 0xE2"},
  };
  for (const auto& c : cases) {
    EXPECT_TRUE(refuses([&] { tokenizer.encode(c.text); }, c.expected));
  }
}

TEST(Tokenizer, RefusesIdsThatNoTokenHas) {
  const Tokenizer tokenizer = *load_tokenizer("tiny-llama2");
  const auto size = static_cast<std::int32_t>(tokenizer.vocab_size());
  for (const std::int32_t id : {-1, size, INT32_MAX}) {
    const std::string text = "token id " + std::to_string(id) +
                             " is not in the vocabulary; ids are below " + std::to_string(size);
    EXPECT_TRUE(refuses([&] { tokenizer.decode(Ids{1, id}); }, text));
    EXPECT_TRUE(refuses([&] { StreamDecoder(tokenizer).push(id); }, text));
  }
}

TEST(Tokenizer, ThreadsShareOne) {
  const Tokenizer tokenizer = *load_tokenizer("tiny-qwen");
  const std::string text = "Once upon a time, 北京欢迎你 e\u0301 <|end|> it's 123";
  const Ids expected = tokenizer.encode(text);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; n < 50; ++n) wrong[i] += tokenizer.encode(text) != expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

// ---- streams ------------------------------------------------------------------------------------

TEST(StreamDecoder, HoldsBackHalfACharacter) {
  const Tokenizer tokenizer = *load_tokenizer("tiny-gpt2");
  const std::string emoji = "\U0001F600";  // four bytes that no merge joins
  const Ids ids = tokenizer.encode(emoji);
  ASSERT_GE(ids.size(), 2u);
  StreamDecoder stream(tokenizer);
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) EXPECT_EQ(stream.push(ids[i]), "");
  EXPECT_EQ(stream.push(ids.back()), emoji);
  EXPECT_EQ(stream.finish(), "");
}

TEST(StreamDecoder, WhatNeverBecomesACharacterIsReplaced) {
  const Tokenizer tokenizer = *load_tokenizer("tiny-gpt2");
  Ids ids = tokenizer.encode("\U0001F600");
  ids.pop_back();
  const std::int32_t a = *tokenizer.id_of("a");
  StreamDecoder stream(tokenizer);
  for (const std::int32_t id : ids) EXPECT_EQ(stream.push(id), "");
  EXPECT_EQ(stream.push(a), "\uFFFDa");
  for (const std::int32_t id : ids) EXPECT_EQ(stream.push(id), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.push(a), "a");  // this is a new stream
}

TEST(StreamDecoder, ARunOfFallbackBytesIsOneTextOrNone) {
  const Tokenizer tokenizer = *load_tokenizer("tiny-llama2");
  const auto byte = [&](int value) { return 3 + value; };
  const std::int32_t a = *tokenizer.id_of("a");
  StreamDecoder stream(tokenizer);
  std::string text;
  for (const int value : {0xE2, 0x82, 0xAC}) text += stream.push(byte(value));
  EXPECT_EQ(text, "");  // the run may go on
  EXPECT_EQ(stream.push(a), "€a");
  for (const int value : {0x41, 0xE2, 0x41}) text += stream.push(byte(value));
  EXPECT_EQ(text, "\uFFFD\uFFFD\uFFFD");  // the second 0x41 makes it certain
  EXPECT_EQ(stream.push(byte(0x42)), "\uFFFD");
  EXPECT_EQ(stream.push(a), "a");
  EXPECT_EQ(stream.push(byte(0xE2)), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
}

TEST(StreamDecoder, DropsTheFirstSpaceOnly) {
  const Tokenizer tokenizer = *load_tokenizer("tiny-llama2");
  const std::int32_t space_a = *tokenizer.id_of("▁a");
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.push(*tokenizer.id_of("<s>")), "");
  EXPECT_EQ(stream.push(space_a), "a");
  EXPECT_EQ(stream.push(space_a), " a");
}

// ---- long texts ---------------------------------------------------------------------------------

class LongTexts : public testing::TestWithParam<const char*> {};

TEST_P(LongTexts, AMegabyteTakesLessThanTwoSeconds) {
  const auto tokenizer = load_tokenizer(GetParam());
  if (!tokenizer) GTEST_SKIP() << why_no_tokenizer(GetParam());
  // Sanitizer builds take a quarter: anything that is not linear shows there as well.
  const std::size_t bytes = kSlowdown > 1 ? 1 << 18 : 1 << 20;
  const auto repeat = [&](std::string_view unit) {
    std::string text;
    while (text.size() < bytes) text += unit;
    return text;
  };
  // The last one is all marks, in an order that normalising has to change everywhere.
  for (const std::string_view unit : {"a", " ", "🙂", "abcdefghijk", "\u0301\u0316"}) {
    const std::string text = repeat(unit);
    // Time of the processor: others may be busy on this machine.
    const std::clock_t start = std::clock();
    const Ids ids = tokenizer->encode(text);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    EXPECT_LT(seconds, 2.0 * kSlowdown) << unit;
    EXPECT_GT(ids.size(), 1000u);
    EXPECT_TRUE(unit == "\u0301\u0316" || tokenizer->decode(ids) == text) << unit;
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, LongTexts,
                         testing::Values("tiny-qwen", "tiny-llama2-legacy", "gpt-neox"), test_name);

TEST(StreamDecoder, TakesTheSameTimeForEveryToken) {
  const Tokenizer tokenizer = *load_tokenizer("tiny-llama2");
  StreamDecoder stream(tokenizer);
  std::size_t bytes = 0;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 200'000; ++i) bytes += stream.push(3 + 'a').size();  // one endless run
  bytes += stream.finish().size();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(bytes, 200'000u);
  EXPECT_LT(took.count(), 1.0 * kSlowdown);
}

}  // namespace
}  // namespace tessera::test
