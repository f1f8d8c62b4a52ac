// Compares the tokens of two answers, and their log-probabilities.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "tessera/sampling.h"

namespace tessera::test {

// NaN if the token is not listed.
inline float logprob_of(const Sampled& sampled, std::int32_t id) {
  const auto found = std::find_if(sampled.top.begin(), sampled.top.end(),
                                  [id](const TokenLogprob& t) { return t.id == id; });
  return found == sampled.top.end() ? NAN : found->logprob;
}

// Compares each token and the most likely ones beside it. The least likely of these is left out: it
// may have changed places with one that is not listed.
inline void expect_near(const std::vector<Sampled>& found, const std::vector<Sampled>& expected,
                        float tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t t = 0; t < found.size(); ++t) {
    ASSERT_EQ(found[t].token.id, expected[t].token.id) << "token " << t;
    EXPECT_NEAR(found[t].token.logprob, expected[t].token.logprob, tolerance) << "token " << t;
    for (std::size_t i = 0; i + 1 < expected[t].top.size(); ++i) {
      const TokenLogprob& likely = expected[t].top[i];
      EXPECT_NEAR(logprob_of(found[t], likely.id), likely.logprob, tolerance) << "token " << t;
    }
  }
}

// The same bits.
inline void expect_same(const std::vector<Sampled>& found, const std::vector<Sampled>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  const auto same = [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.id == b.id && a.logprob == b.logprob;
  };
  for (std::size_t t = 0; t < found.size(); ++t) {
    EXPECT_TRUE(same(found[t].token, expected[t].token))
        << "token " << t << ": " << found[t].token.id << " of " << found[t].token.logprob
        << ", expected " << expected[t].token.id << " of " << expected[t].token.logprob;
    EXPECT_TRUE(std::equal(found[t].top.begin(), found[t].top.end(), expected[t].top.begin(),
                           expected[t].top.end(), same))
        << "token " << t;
  }
}

}  // namespace tessera::test
