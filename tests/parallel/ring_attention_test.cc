// Attention around the ring against the float64 twin over the whole sequence: every mask, lengths
// that no number of ranks divides, lengths below the number of ranks, grouped heads, each dtype.
#include "tessera/ring_attention.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "modules/ring_mask.h"
#include "parallel/ranks.h"
#include "support/attention_case.h"
#include "support/ring_case.h"
#include "tessera/error.h"

namespace tessera::test {
namespace {

TEST(RingAttention, EveryMaskAndLength) {
  Context ctx({.threads = 1});
  for (const std::int64_t tokens : {1, 2, 3, 7, 37, 75}) {
    for (const Mask& mask : every_mask(tokens, tokens)) {
      SCOPED_TRACE(std::to_string(tokens) + " " + mask.to_string());
      check_ring_forward(ctx, ranks(), {.tokens = tokens, .mask = mask});
      check_ring_backward(ctx, ranks(), {.tokens = tokens, .mask = mask});
    }
  }
}

// Windows shorter than a chunk, longer than one, and longer than all; sinks that end in a chunk.
TEST(RingAttention, WindowsAndSinksOfEveryWidth) {
  Context ctx({.threads = 1});
  for (const std::int64_t width : {0, 1, 4, 9, 17, 40, 70}) {
    for (const Mask& mask :
         {Mask::window(width, 0), Mask::window(width, 3), Mask::window(2, width),
          Mask::window(-1, width), Mask::sinks(5, width + 1), Mask::sinks(width, 3)}) {
      SCOPED_TRACE(mask.to_string());
      check_ring_forward(ctx, ranks(), {.tokens = 67, .mask = mask});
    }
  }
}

TEST(RingAttention, DtypesGroupedHeadsAndSoftcap) {
  Context ctx({.threads = 1});
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const RingCase c{
        .tokens = 61, .mask = Mask::causal(), .dtype = dtype, .softcap = 3.f, .kv_heads = 1};
    check_ring_forward(ctx, ranks(), c);
    check_ring_backward(ctx, ranks(), c);
  }
}

// Each rank has as many visible pairs as another, up to one chunk.
TEST(RingAttention, TheZigzagIsBalanced) {
  const RingLayout layout(8192, 4);
  std::vector<std::int64_t> pairs;
  std::int64_t rows = 0;
  for (int rank = 0; rank < 4; ++rank) {
    rows += layout.rows(rank);
    pairs.push_back(0);
    for (const RingLayout::Chunk& chunk : layout.chunks(rank)) {
      for (std::int64_t row = chunk.begin; row < chunk.end; ++row) pairs.back() += row + 1;
    }
  }
  EXPECT_EQ(rows, 8192);
  for (const std::int64_t count : pairs) EXPECT_EQ(count, pairs.front());
}

TEST(RingAttention, RefusesRowsOfAnotherLayout) {
  Context ctx({.threads = 1});
  RingCallOfRank call(ctx, ranks(), {.tokens = 40, .mask = Mask::causal()});
  call.args.tokens = 400;
  EXPECT_THROW(ring_attention(ctx, ranks(), call.args), Error);
}

}  // namespace
}  // namespace tessera::test
