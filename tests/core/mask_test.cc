#include "tessera/mask.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <span>
#include <vector>

#include "core/checked.h"
#include "reference/attention.h"
#include "support/attention_case.h"
#include "support/refusal.h"

namespace tessera::test {
namespace {

// ---- BlockMask ---------------------------------------------------------------------------------

using Row = std::vector<std::int32_t>;

Row row_of(const BlockMask& mask, std::int64_t r) {
  const std::span<const std::int32_t> row = mask.row(r);
  return {row.begin(), row.end()};
}

TEST(BlockMask, KeepsTheListsOfACsr) {
  const std::vector<std::int64_t> offsets{0, 2, 2, 5};
  const Row indices{0, 3, 1, 2, 3};
  const BlockMask mask = BlockMask::from_csr(8, 3, 4, offsets, indices);
  EXPECT_TRUE(mask.defined());
  EXPECT_FALSE(BlockMask().defined());
  EXPECT_EQ(mask.block(), 8);
  EXPECT_EQ(mask.q_blocks(), 3);
  EXPECT_EQ(mask.k_blocks(), 4);
  EXPECT_EQ(mask.visited(), 5);
  EXPECT_EQ(row_of(mask, 0), (Row{0, 3}));
  EXPECT_EQ(row_of(mask, 1), Row{});
  EXPECT_TRUE(mask.contains(2, 1));
  EXPECT_FALSE(mask.contains(2, 0));
  EXPECT_TRUE(std::equal(offsets.begin(), offsets.end(), mask.offsets().begin()));
}

TEST(BlockMask, KnowsItsLongestRows) {
  const std::vector<std::int64_t> offsets{0, 1, 1, 4, 5};
  const BlockMask mask = BlockMask::from_csr(16, 4, 3, offsets, Row{2, 0, 1, 2, 1});
  const auto as_row = [](std::span<const std::int32_t> list) {
    return Row(list.begin(), list.end());
  };
  EXPECT_EQ(as_row(mask.longest_first()), (Row{2, 3, 0, 1}));
  EXPECT_EQ(as_row(mask.indices()), (Row{2, 0, 1, 2, 1}));
  EXPECT_EQ(mask.bytes().size(), 5 * sizeof(std::int64_t) + 9 * sizeof(std::int32_t));
  EXPECT_EQ(mask.visited(), 5);
}

TEST(BlockMask, RefusesABrokenCsr) {
  struct Broken {
    std::int64_t block, q_blocks, k_blocks;
    std::vector<std::int64_t> offsets;
    Row indices;
    std::string text;
  };
  const std::vector<Broken> table = {
      {0, 1, 1, {0, 1}, {0}, "BlockMask::from_csr: block is 0; it must be at least 1"},
      {8, -1, 1, {0}, {}, "BlockMask::from_csr: q_blocks is -1; it must be in 0..2147483647"},
      {8,
       1,
       1ll << 31,
       {0, 0},
       {},
       "BlockMask::from_csr: k_blocks is 2147483648; it must be in 0..2147483647"},
      {8, 2, 4, {0, 1}, {0}, "BlockMask::from_csr: 2 offsets were given; 2 query blocks need 3"},
      {8,
       2,
       4,
       {1, 1, 2},
       {0, 1},
       "BlockMask::from_csr: offsets run from 1 to 2; they must run from 0 to the number of "
       "indices, 2"},
      {8,
       2,
       4,
       {0, 1, 1},
       {0, 1},
       "BlockMask::from_csr: offsets run from 0 to 1; they must run from 0 to the number of "
       "indices, 2"},
      {8,
       2,
       4,
       {0, 3, 2},
       {0, 1},
       "BlockMask::from_csr: offsets fall from 3 to 2 at query block 1; they must not fall"},
      {8, 1, 4, {0, 2}, {0, 4}, "BlockMask::from_csr: key block 4 of query block 0 is not in 0..3"},
      {8, 1, 4, {0, 1}, {-1}, "BlockMask::from_csr: key block -1 of query block 0 is not in 0..3"},
      {8,
       1,
       4,
       {0, 2},
       {2, 1},
       "BlockMask::from_csr: key block 1 follows 2 in query block 0; the key blocks of a row must "
       "rise, each given once"},
      {8,
       1,
       4,
       {0, 2},
       {2, 2},
       "BlockMask::from_csr: key block 2 follows 2 in query block 0; the key blocks of a row must "
       "rise, each given once"},
  };
  for (const Broken& b : table) {
    EXPECT_TRUE(
        refuses([&] { BlockMask::from_csr(b.block, b.q_blocks, b.k_blocks, b.offsets, b.indices); },
                b.text));
  }
  EXPECT_TRUE(refuses([] { BlockMask::local(1ll << 40, 1 << 30, 1, 0); },
                      "size 1099511627776 x 1073741824 does not fit into 64 bits",
                      ErrorCode::overflow));
}

TEST(BlockMask, LocalIsWithinTheRadius) {
  for (std::int64_t q_blocks : {1, 5, 9}) {
    for (std::int64_t k_blocks : {1, 5, 9}) {
      for (std::int64_t radius : {std::int64_t{0}, std::int64_t{2}, INT64_MAX}) {
        const BlockMask mask = BlockMask::local(16, q_blocks, k_blocks, radius);
        for (std::int64_t r = 0; r < q_blocks; ++r) {
          for (std::int64_t c = 0; c < k_blocks; ++c) {
            EXPECT_EQ(mask.contains(r, c), std::abs(r - c) <= radius) << r << " " << c;
          }
        }
      }
    }
  }
}

TEST(BlockMask, StridedIsNearAndEveryNth) {
  for (std::int64_t q_blocks : {1, 9}) {
    for (std::int64_t stride : {1, 3, 100}) {
      const BlockMask mask = BlockMask::strided(16, q_blocks, 7, 1, stride);
      for (std::int64_t r = 0; r < q_blocks; ++r) {
        for (std::int64_t c = 0; c < 7; ++c) {
          EXPECT_EQ(mask.contains(r, c), std::abs(r - c) <= 1 || c % stride == 0) << r << " " << c;
        }
      }
    }
  }
}

TEST(BlockMask, RandomDrawsWithoutRepetition) {
  for (std::int64_t per_row : {1, 3, 10}) {
    const BlockMask mask = BlockMask::random(16, 12, 10, per_row, 5);
    for (std::int64_t r = 0; r < 12; ++r) {
      const Row row = row_of(mask, r);
      EXPECT_EQ(std::ssize(row), per_row);
      EXPECT_EQ(std::set(row.begin(), row.end()).size(), row.size());
      EXPECT_TRUE(std::is_sorted(row.begin(), row.end()));
      EXPECT_TRUE(r >= 10 || mask.contains(r, r));
    }
  }
  const auto indices = [](std::uint64_t seed) {
    const BlockMask mask = BlockMask::random(16, 12, 10, 3, seed);
    return Row(mask.indices().begin(), mask.indices().end());
  };
  EXPECT_EQ(indices(5), indices(5));
  EXPECT_NE(indices(5), indices(6));
}

// Apart from block 0, all blocks are equally frequent: 2 of 9 in 1000 rows is 222 on average,
// deviation 13.
TEST(BlockMask, RandomIsEven) {
  std::vector<int> counts(10);
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    for (std::int32_t c : row_of(BlockMask::random(16, 1, 10, 3, seed), 0)) ++counts[c];
  }
  EXPECT_EQ(counts[0], 1000);
  for (int c = 1; c < 10; ++c) EXPECT_NEAR(counts[c], 222, 60);
}

TEST(BlockMask, BuildersRefuseBadNumbers) {
  EXPECT_TRUE(refuses([] { BlockMask::local(8, 2, 2, -1); },
                      "BlockMask::local: radius is -1; it must be at least 0"));
  EXPECT_TRUE(refuses([] { BlockMask::strided(8, 2, 2, -1, 2); },
                      "BlockMask::strided: radius is -1; it must be at least 0"));
  EXPECT_TRUE(refuses([] { BlockMask::strided(8, 2, 2, 0, 0); },
                      "BlockMask::strided: stride is 0; it must be at least 1"));
  for (std::int64_t per_row : {0, 3}) {
    EXPECT_TRUE(refuses([&] { BlockMask::random(8, 2, 2, per_row, 1); },
                        "BlockMask::random: per_row is " + std::to_string(per_row) +
                            "; it must be in 1..2, the number of key blocks"));
  }
}

// ---- Mask --------------------------------------------------------------------------------------

TEST(Mask, AllowsWhatItsDefinitionSays) {
  // Four queries and six keys: query 0 is at position 2.
  const auto pattern = [](const Mask& mask) {
    std::string text;
    for (std::int64_t i = 0; i < 4; ++i) {
      for (std::int64_t j = 0; j < 6; ++j) text += mask.allows(i, i + 2, j) ? 'x' : '.';
      text += ' ';
    }
    return text;
  };
  EXPECT_EQ(pattern(Mask::full()), "xxxxxx xxxxxx xxxxxx xxxxxx ");
  EXPECT_EQ(pattern(Mask::causal()), "xxx... xxxx.. xxxxx. xxxxxx ");
  EXPECT_EQ(pattern(Mask::window(1, 0)), ".xx... ..xx.. ...xx. ....xx ");
  EXPECT_EQ(pattern(Mask::window(0, 2)), "..xxx. ...xxx ....xx .....x ");
  EXPECT_EQ(pattern(Mask::window(-1, 1)), "xxxx.. xxxxx. xxxxxx xxxxxx ");
  EXPECT_EQ(pattern(Mask::sinks(1, 2)), "xxx... x.xx.. x..xx. x...xx ");
  EXPECT_EQ(pattern(Mask::blocks(BlockMask::local(2, 2, 3, 0))), "xx.... xx.... ..xx.. ..xx.. ");
  EXPECT_EQ(pattern(Mask::blocks(BlockMask::strided(2, 2, 3, 0, 2), true)),
            "xx.... xx.... xxxxx. xxxxxx ");
}

TEST(Mask, AllowsWhatTheReferenceSees) {
  for (const auto& [n_q, n_k] : {std::pair{20, 20}, {9, 30}, {30, 9}}) {
    for (const Mask& mask : every_mask(n_q, n_k)) {
      for (std::int64_t i = 0; i < n_q; ++i) {
        for (std::int64_t j = 0; j < n_k; ++j) {
          const std::int64_t p = i + n_k - n_q;
          ASSERT_EQ(mask.allows(i, p, j), reference::sees(mask, i, p, j)) << mask.to_string();
        }
      }
    }
  }
}

// For all tiles of several sizes, classify() and next_visible() agree with counting elements.
void check_tiles(const Mask& mask, std::int64_t n_q, std::int64_t n_k) {
  SCOPED_TRACE(testing::Message() << mask.to_string() << " " << n_q << " x " << n_k);
  const bool exact = mask.kind() != Mask::Kind::blocks || mask.right() < 0;
  const std::int64_t shift = n_k - n_q;
  for (std::int64_t rows : {1, 3, 16}) {
    for (std::int64_t q0 = 0; q0 < n_q; q0 += rows) {
      const std::int64_t q1 = std::min(q0 + rows, n_q);
      std::vector<int> visible(static_cast<std::size_t>(n_k));  // rows that see the key
      for (std::int64_t i = q0; i < q1; ++i) {
        for (std::int64_t j = 0; j < n_k; ++j) visible[j] += mask.allows(i, i + shift, j);
      }
      for (std::int64_t columns : {1, 5, 16}) {
        for (std::int64_t k0 = 0; k0 < n_k; k0 += columns) {
          const std::int64_t k1 = std::min(k0 + columns, n_k);
          const std::int64_t count =
              std::accumulate(visible.begin() + k0, visible.begin() + k1, std::int64_t{0});
          const TileState state = mask.classify(q0, q1, k0, k1, shift);
          const TileState expected = count == 0                       ? TileState::skip
                                     : count == (q1 - q0) * (k1 - k0) ? TileState::full
                                                                      : TileState::partial;
          ASSERT_TRUE(state == expected || (!exact && state == TileState::partial))
              << q0 << " " << k0;
        }
      }
      for (std::int64_t k = 0; k <= n_k; ++k) {
        const auto found =
            std::find_if(visible.begin() + k, visible.end(), [](int n) { return n > 0; });
        const std::int64_t first = found == visible.end() ? Mask::kNoKey : found - visible.begin();
        const std::int64_t next = mask.next_visible(q0, q1, k, shift);
        ASSERT_GE(next, k);
        ASSERT_LE(next, first);
        // The mask does not know where the keys end.
        ASSERT_TRUE(next == first || next >= n_k || !exact) << q0 << " " << k;
      }
    }
  }
}

TEST(Mask, TilesAreWhatTheirElementsAre) {
  for (const auto& [n_q, n_k] : {std::pair{1, 1}, {1, 40}, {33, 33}, {20, 45}, {45, 20}}) {
    for (const Mask& mask : every_mask(n_q, n_k)) check_tiles(mask, n_q, n_k);
    check_tiles(Mask::window(INT64_MAX, INT64_MAX), n_q, n_k);
    check_tiles(Mask::sinks(INT64_MAX, INT64_MAX), n_q, n_k);
    check_tiles(Mask::window(3, 2), n_q, n_k);
    check_tiles(Mask::sinks(5, 4), n_q, n_k);
    const std::int64_t q = ceil_div(n_q, 4), k = ceil_div(n_k, 4);
    check_tiles(Mask::blocks(BlockMask::random(4, q, k, std::min<std::int64_t>(3, k), 3)), n_q,
                n_k);
  }
}

TEST(Mask, NamesItself) {
  EXPECT_EQ(Mask::full().to_string(), "full");
  EXPECT_EQ(Mask::causal().to_string(), "causal");
  EXPECT_EQ(Mask::window(128, -1).to_string(), "window(128, -1)");
  EXPECT_EQ(Mask::sinks(4, 1024).to_string(), "sinks(4, 1024)");
  EXPECT_EQ(Mask::blocks(BlockMask::local(64, 2, 3, 0), true).to_string(),
            "blocks(2x3 of 64, 2 visited, causal)");
}

TEST(Mask, RefusesBadNumbers) {
  EXPECT_TRUE(refuses([] { Mask::window(-2, 0); },
                      "Mask::window: left is -2 and right is 0; each must be at least 0, or -1 for "
                      "open"));
  EXPECT_TRUE(refuses([] { Mask::window(0, -5); },
                      "Mask::window: left is 0 and right is -5; each must be at least 0, or -1 for "
                      "open"));
  EXPECT_TRUE(refuses([] { Mask::sinks(-1, 4); },
                      "Mask::sinks: n_sink is -1 and window is 4; they must be at least 0 and 1"));
  EXPECT_TRUE(refuses([] { Mask::sinks(4, 0); },
                      "Mask::sinks: n_sink is 4 and window is 0; they must be at least 0 and 1"));
  EXPECT_TRUE(refuses([] { Mask::blocks({}); },
                      "Mask::blocks: the pattern is empty; make one with BlockMask::local, random, "
                      "strided or from_csr"));
}

}  // namespace
}  // namespace tessera::test
