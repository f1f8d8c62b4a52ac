// Patterns in Oniguruma's dialect: what they are translated to, and what they match.
#include "model/tokenizer/oniguruma.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/checkpoint/quote.h"
#include "model/tokenizer/regex.h"
#include "support/refusal.h"

namespace tessera::model {
namespace {

using test::refuses;

std::vector<std::string> matches(const std::string& pattern, const std::string& text) {
  std::vector<Span> spans;
  Effort effort;
  Regex::oniguruma(pattern, "test").find_all(text, effort, spans);
  std::vector<std::string> found;
  for (const Span span : spans) found.push_back(text.substr(span.begin, span.end - span.begin));
  return found;
}

using Texts = std::vector<std::string>;

TEST(Oniguruma, WhiteSpaceIsUnicodesOwn) {
  // U+0085 and U+3000 are white space; U+180E and U+200B are not.
  EXPECT_EQ(matches(R"(\s+)", "a\u0085\u3000b\u180Ec\u200Bd"), Texts{"\u0085\u3000"});
  EXPECT_EQ(matches(R"([^\S\n]+)", "a \t\n\u00A0b"), (Texts{" \t", "\u00A0"}));
}

TEST(Oniguruma, WordsHaveMarksAndConnectors) {
  EXPECT_EQ(matches(R"(\w+)", "e\u0301a x\u203Fy"), (Texts{"e\u0301a", "x\u203Fy"}));
  EXPECT_EQ(matches(R"([\w-]+)", "a-b c"), (Texts{"a-b", "c"}));
  EXPECT_EQ(matches(R"(\ba)", "a e\u0301a \u0301a"), Texts{"a"});
}

TEST(Oniguruma, HIsAHexDigit) {
  EXPECT_EQ(matches(R"(\h+)", "0xAFg 12"), (Texts{"0", "AF", "12"}));
  EXPECT_EQ(matches(R"([\h ]+)", "xA F"), Texts{"A F"});
}

TEST(Oniguruma, ScriptsHaveNoExtensions) {
  // U+3001 is used in Han texts, but belongs to no script.
  EXPECT_EQ(matches(R"(\p{Han}+)", "漢\u3001字"), (Texts{"漢", "字"}));
  EXPECT_EQ(matches(R"(\p{^L}+)", "a1b"), Texts{"1"});
  EXPECT_EQ(matches(R"(\p{Letter}+)", "a1b"), (Texts{"a", "b"}));
}

TEST(Oniguruma, AnIntervalWithAPlusRepeats) {
  EXPECT_EQ(matches(R"(\p{N}{1,3}+)", "12345"), Texts{"12345"});  // possessive elsewhere: "123"
  EXPECT_EQ(matches(R"((ab){1,2}+c)", "ababababc"), Texts{"ababababc"});
  EXPECT_EQ(matches(R"(a{,2}b)", "aaab"), Texts{"aab"});
  EXPECT_EQ(matches(R"(xa{2}?)", "xa xaa"), (Texts{"x", "xaa"}));
  EXPECT_EQ(matches(R"(a{x)", "a{x"), Texts{"a{x"});
}

TEST(Oniguruma, LinesBeginAndEndAtEveryNewline) {
  EXPECT_EQ(matches("^.", "ab\ncd"), (Texts{"a", "c"}));
  EXPECT_EQ(matches(".$", "ab\ncd"), (Texts{"b", "d"}));
  EXPECT_EQ(matches("(?m:b.c)", "b\nc"), Texts{"b\nc"});
}

TEST(Oniguruma, CodePointsAndEscapes) {
  EXPECT_EQ(matches(R"(\u3042|\x{1F642}|\x41|\v|\-)", "Aあ🙂\x0b-"),
            (Texts{"A", "あ", "🙂", "\x0b", "-"}));
  EXPECT_EQ(matches(R"([\[\]\\^]+)", "a[\\]^b"), Texts{"[\\]^"});
}

TEST(Oniguruma, EmptyMatchesDoNotTouchTheLastMatch) {
  EXPECT_EQ(matches("a*", "baac"), (Texts{"", "aa", ""}));
}

TEST(Oniguruma, RefusesByNameWhatWouldDiffer) {
  const struct {
    const char *pattern, *what;
    int at;
  } cases[] = {
      {"[a[bc]]", "a class inside a class", 2},
      {"[a-z&&b]", "a class inside a class", 4},
      {"[[:alpha:]]", "a class inside a class", 1},
      {"[\\W]", "\\W", 1},
      {"(a)\\1", "\\1", 3},
      {"\\K", "\\K", 0},
      {"\\Qa\\E", "\\Q", 0},
      {"\\pL", "\\p without {name}", 0},
      {"a(?i)b", "flags for the rest of the pattern", 1},
      {"(?x: a )", "the group \"(?x\"", 0},
      {"(?~ab)", "the group \"(?~\"", 0},
      {"(*NO_JIT)a", "a verb, \"(*\",", 0},
      {"a(*SKIP)b", "a verb, \"(*\",", 1},
      {"(?i:maSSe)", "letters that fold to others, without regard to case,", 6},
      {"(?i)é", "letters that fold to others, without regard to case,", 4},
      {"\\xFF", "\\x of a byte above 7F", 0},
      {"\\u12", "an unfinished code point", 0},
      {"[]", "an empty [ ]", 1},
      {"[a", "a [ without its ]", 2},
      {"a)", "a ) without its (", 1},
      {"a{1}+{1}+", "an interval of a repeated interval", 5},
      {"ab{1001}", "an interval beyond 1000", 2},
      {"a{3,1000000000000}", "an interval beyond 1000", 1},
      {"\\", "a lone \\", 0},
  };
  for (const auto& c : cases) {
    const std::string text = "t.json: the pattern " + in_quotes(c.pattern) + " has " + c.what +
                             " at byte " + std::to_string(c.at) + ", which is not supported";
    EXPECT_TRUE(
        refuses([&] { pcre_from_oniguruma(c.pattern, "t.json"); }, text, ErrorCode::unsupported));
  }
  EXPECT_EQ(matches("(?i:a)é", "Aé"), Texts{"Aé"});  // outside the group, case matters
}

TEST(Regex, RefusesWhatDoesNotCompile) {
  EXPECT_TRUE(
      refuses([] { Regex::oniguruma("\\p{NoSuchScript}", "t.json"); },
              "t.json: the pattern \"\\\\p{sc:nosuchscript}\" cannot be used: unknown property "
              "after \\P or \\p at byte 19",
              ErrorCode::unsupported));
  EXPECT_TRUE(
      refuses([] { Regex::oniguruma("(a", "t.json"); },
              "t.json: the pattern \"(a\" cannot be used: missing closing parenthesis at byte "
              "2",
              ErrorCode::unsupported));
}

constexpr const char* kTooManySteps =
    "t.json: the pattern takes more than 100 steps for each byte of this text";

TEST(Regex, GivesUpOnAPatternThatBacktracksWithoutEnd) {
  const Regex regex = Regex::oniguruma("(?:\\p{L}\\p{L}*)+\\d", "t.json");
  std::vector<Span> spans;
  Effort effort;
  EXPECT_TRUE(refuses([&] { regex.find_all(std::string(60, 'a'), effort, spans); }, kTooManySteps,
                      ErrorCode::unsupported));
}

// A repeated group needs memory for every repetition. It does not come from the machine's stack.
TEST(Regex, ALongRepetitionDoesNotOverflowTheStack) {
  std::vector<Span> spans;
  Effort effort;
  Regex::oniguruma("(?:a|b)*(?:a|c)*", "t.json").find_all(std::string(1 << 20, 'a'), effort, spans);
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0].end, std::size_t{1} << 20);
}

// Each looks to the end of the text from every place. The steps are counted for all matches
// together, so the time until the refusal is linear.
TEST(Regex, StepsAreCountedForTheWholeText) {
  const std::string text(1 << 16, 'a');
  for (const char* pattern :
       {"a*b|a", "a*+b|a", "a*?b|a", "a(?=a*b)|a", "(?:a|x)*b|a", "a(?!a*$)|a", "(?>a*)b|a",
        "[a-y]*z|a", "\\w*\\d|a", "a*a*a*b|a", ".*b|a", "\\X*b|a", "a*(?:b|c|$(?!$))|a"}) {
    std::vector<Span> spans;
    Effort effort;
    EXPECT_TRUE(refuses([&] { Regex::oniguruma(pattern, "t.json").find_all(text, effort, spans); },
                        kTooManySteps, ErrorCode::unsupported))
        << pattern;
    EXPECT_LT(effort.spent(), (Effort::kStepsPerByte + 2) * text.size() + Effort::kStepsAtStart);
  }
}

TEST(Regex, PublishedPatternsTakeAFewSteps) {
  const char* const patterns[] = {
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
  };
  for (const std::string_view unit : {"Once upon a time, it's 1999.\n", "a", "A", " ", "\n", " \n",
                                      "1", "!", "'s", "字", "\t x", "\u0301", "'", "aB"}) {
    std::string text;
    while (text.size() < 20'000) text += unit;
    for (const char* pattern : patterns) {
      std::vector<Span> spans;
      Effort effort;
      Regex::oniguruma(pattern, "t.json").find_all(text, effort, spans);
      EXPECT_LT(effort.spent(), 40 * text.size()) << unit;
    }
  }
}

}  // namespace
}  // namespace tessera::model
