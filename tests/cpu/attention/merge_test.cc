#include "cpu/attention/merge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "reference/attention.h"
#include "reference/test_tensor.h"

namespace tessera::test {
namespace {

struct Partial {
  std::vector<float> out;
  float lse;
};

Partial merged(Partial a, const Partial& b) {
  cpu::merge_attention(a.out.data(), &a.lse, b.out.data(), b.lse, std::ssize(a.out));
  return a;
}

// Attention of one query over the keys [begin, end).
Partial over(const Array& q, const Array& k, const Array& v, std::int64_t begin, std::int64_t end) {
  const auto slice = [&](const Array& x) {
    Array part({1, end - begin, 1, x.size(3)});
    std::copy(x.data.begin() + begin * x.size(3), x.data.begin() + end * x.size(3),
              part.data.begin());
    return part;
  };
  const reference::AttentionResult result =
      reference::attention({.q = q, .k = slice(k), .v = slice(v)});
  return {{result.out.data.begin(), result.out.data.end()}, static_cast<float>(result.lse.data[0])};
}

void expect_near(const Partial& a, const Partial& b) {
  EXPECT_NEAR(a.lse, b.lse, 1e-6);
  for (std::size_t i = 0; i < a.out.size(); ++i) EXPECT_NEAR(a.out[i], b.out[i], 1e-6);
}

TEST(AttentionMerge, PartsMakeTheWholeInAnyOrder) {
  const Array q = random_normal({1, 1, 1, 13}, 1), k = random_normal({1, 50, 1, 13}, 2),
              v = random_normal({1, 50, 1, 13}, 3);
  const Partial whole = over(q, k, v, 0, 50);
  const Partial a = over(q, k, v, 0, 7), b = over(q, k, v, 7, 8), c = over(q, k, v, 8, 50);
  expect_near(merged(merged(a, b), c), whole);
  expect_near(merged(a, merged(b, c)), whole);
  expect_near(merged(merged(c, a), b), whole);
}

TEST(AttentionMerge, NothingChangesNothing) {
  const Partial some{{1.f, -2.f}, 0.3f}, nothing{{0.f, 0.f}, -INFINITY};
  for (const Partial& result : {merged(some, nothing), merged(nothing, some)}) {
    EXPECT_EQ(result.out, some.out);
    EXPECT_EQ(result.lse, some.lse);
  }
  const Partial still = merged(nothing, nothing);
  EXPECT_EQ(still.out, nothing.out);
  EXPECT_EQ(still.lse, -INFINITY);
}

TEST(AttentionMerge, LargeExponentsDoNotOverflow) {
  const Partial result = merged({{2.f}, 1000.f}, {{4.f}, 1000.f});
  EXPECT_EQ(result.out[0], 3.f);
  EXPECT_FLOAT_EQ(result.lse, 1000.f + std::log(2.f));
  EXPECT_EQ(merged({{2.f}, -1000.f}, {{4.f}, 1000.f}).out[0], 4.f);
}

}  // namespace
}  // namespace tessera::test
