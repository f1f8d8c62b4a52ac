// Stop strings in text that arrives in pieces.
#include "engine/stop_text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/refusal.h"

namespace tessera::test {
namespace {

// Cuts a text into pieces. The bits of `cuts` say where.
std::vector<std::string> pieces(const std::string& text, unsigned cuts) {
  std::vector<std::string> out(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    out.back() += text[i];
    if ((cuts >> i & 1) != 0) out.emplace_back();
  }
  return out;
}

TEST(StopText, EndsBeforeTheFirstStopStringHoweverTheTextIsCut) {
  const struct {
    std::string text;
    std::vector<std::string> stops;
    std::string expected;
  } cases[] = {
      {"ab<end>cd", {"<end>"}, "ab"}, {"ab<en cd", {"<end>"}, "ab<en cd"},
      {"aaab", {"aab"}, "a"},         {"ababac", {"abac", "xx"}, "ab"},
      {"xabcd", {"bcd", "abc"}, "x"}, {"xabcd", {"abcde", "bc"}, "xa"},
      {"hello", {"o"}, "hell"},       {"hello", {"h"}, ""},
      {"hello", {}, "hello"},         {"a\n\nb", {"\n\n"}, "a"},
      {"abab", {"ababab"}, "abab"},   {"", {"x"}, ""},
  };
  for (const auto& c : cases) {
    const std::size_t cut_count = c.text.empty() ? 1 : std::size_t{1} << (c.text.size() - 1);
    for (unsigned cuts = 0; cuts < cut_count; ++cuts) {
      StopText stop(c.stops);
      std::string out;
      for (const std::string& piece : pieces(c.text, cuts)) {
        out += stop.push(piece);
        // Text that was returned can never be taken back.
        EXPECT_TRUE(c.expected.starts_with(out)) << c.text << ", cuts " << cuts << ": " << out;
      }
      out += stop.finish();
      EXPECT_EQ(out, c.expected) << c.text << ", cuts " << cuts;
      EXPECT_EQ(stop.stopped(), c.expected != c.text);
    }
  }
}

TEST(StopText, HoldsBackOnlyWhatMayBeginAStopString) {
  StopText stop({"</s>", "\n\n"});
  EXPECT_EQ(stop.push("hello <"), "hello ");
  EXPECT_EQ(stop.push("b"), "<b");
  EXPECT_EQ(stop.push("\n"), "");
  EXPECT_EQ(stop.push("x</"), "\nx");
  EXPECT_EQ(stop.finish(), "</");
}

TEST(StopText, GivesNothingOnceStopped) {
  StopText stop({"."});
  EXPECT_EQ(stop.push("a.b"), "a");
  EXPECT_TRUE(stop.stopped());
  EXPECT_EQ(stop.push("c"), "");
  EXPECT_EQ(stop.finish(), "");
}

TEST(StopText, RefusesAnEmptyStopString) {
  EXPECT_TRUE(refuses(
      [] {
        StopText stop({"a", ""});
      },
      "a stop string is empty; it must have at least one character"));
}

}  // namespace
}  // namespace tessera::test
