#include "core/wildcard.h"

#include <gtest/gtest.h>

#include <string>

namespace tessera::test {
namespace {

TEST(Wildcard, ANameMatchesItselfAlone) {
  EXPECT_TRUE(wildcard_match("lm_head", "lm_head"));
  EXPECT_FALSE(wildcard_match("lm_head", "lm_head2"));
  EXPECT_FALSE(wildcard_match("lm_head", "lm_hea"));
  EXPECT_TRUE(wildcard_match("", ""));
  EXPECT_FALSE(wildcard_match("", "a"));
}

TEST(Wildcard, AStarStandsForAnythingAnywhere) {
  EXPECT_TRUE(wildcard_match("model.layers.0*", "model.layers.0.mlp.up_proj"));
  EXPECT_TRUE(wildcard_match("*.attention.dense", "gpt_neox.layers.3.attention.dense"));
  EXPECT_FALSE(wildcard_match("*.attention.dense", "gpt_neox.layers.3.attention.dense2"));
  EXPECT_TRUE(wildcard_match("a*b*c", "a-b-b-c"));
  EXPECT_FALSE(wildcard_match("a*b*c", "a-c-b"));
  EXPECT_TRUE(wildcard_match("*", ""));
  EXPECT_TRUE(wildcard_match("**", "anything"));
  EXPECT_TRUE(wildcard_match("a**", "a"));
}

TEST(Wildcard, ManyStarsTakeNoLongerThanTheTextSquared) {
  const std::string text(5000, 'a');
  std::string pattern;
  for (int i = 0; i < 50; ++i) pattern += "a*";
  EXPECT_FALSE(wildcard_match(pattern + "b", text));  // exponential if every star backtracks
}

}  // namespace
}  // namespace tessera::test
