#include "core/huge_pages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "tessera/buffer.h"

namespace tessera::test {
namespace {

struct Block {
  char* data;
  std::int64_t bytes;
  char mark;
};

bool is_all(const Block& block) {
  return block.data[0] == block.mark &&
         std::memcmp(block.data, block.data + 1, static_cast<std::size_t>(block.bytes - 1)) == 0;
}

// What a block holds shows whether another one lies over it, or the list of free blocks does.
TEST(HugePages, BlocksNeverOverlapAndComeBackWhole) {
  HugePages pages;
  std::mt19937_64 rng(1);
  std::vector<Block> blocks;
  for (int step = 0; step < 4000; ++step) {
    if (blocks.size() < 40 && rng() % 5 < 3) {
      const auto bytes = static_cast<std::int64_t>(1 + rng() % (1 << (6 + rng() % 16)));
      const Block block{static_cast<char*>(pages.take(bytes)), bytes, static_cast<char>(step)};
      ASSERT_NE(block.data, nullptr);
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(block.data) % 64, 0u);
      std::memset(block.data, block.mark, static_cast<std::size_t>(bytes));
      blocks.push_back(block);
    } else if (!blocks.empty()) {
      std::swap(blocks[rng() % blocks.size()], blocks.back());
      ASSERT_TRUE(is_all(blocks.back()));
      ASSERT_TRUE(pages.give_back(blocks.back().data, blocks.back().bytes));
      blocks.pop_back();
    }
  }
  EXPECT_GT(pages.slabs(), 1);
  for (const Block& block : blocks) {
    ASSERT_TRUE(is_all(block));
    ASSERT_TRUE(pages.give_back(block.data, block.bytes));
  }
  EXPECT_EQ(pages.slabs(), 1);  // one is kept
  // It is one free block again: three of the largest fit beside its header, and no fourth does.
  for (int i = 0; i < 3; ++i) EXPECT_NE(pages.take(HugePages::kHugePage), nullptr);
  EXPECT_EQ(pages.slabs(), 1);
  EXPECT_NE(pages.take(HugePages::kHugePage), nullptr);
  EXPECT_EQ(pages.slabs(), 2);
}

TEST(HugePages, MemoryOfOthersIsRefused) {
  HugePages pages;
  std::vector<char> other(64);
  EXPECT_FALSE(pages.give_back(other.data(), 64));
  ASSERT_NE(pages.take(100), nullptr);
  EXPECT_FALSE(pages.give_back(other.data(), 64));
}

// Weights of less than a huge page lie side by side, as one on pages of its own.
TEST(HugePages, BuffersOfMediumSizeShareThem) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers watch the end of each block";
#else
  const Buffer first(std::int64_t{300} << 10), second(std::int64_t{300} << 10);
  const auto at = [](const Buffer& b) { return reinterpret_cast<std::uintptr_t>(b.data()); };
  EXPECT_EQ(at(second) - at(first), std::uintptr_t{300} << 10);
#endif
}

}  // namespace
}  // namespace tessera::test
