// How many tokens of prompts a step takes beside streams.
#include "engine/chunk_pacer.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace tessera::test {
namespace {

using engine::ChunkPacer;

// A step takes 3 ms for its streams and 15 us for each token of a prompt.
double seconds_of(std::int64_t streams, std::int64_t prompts) {
  return (streams > 0 ? 3e-3 : 0) + 15e-6 * static_cast<double>(prompts);
}

TEST(ChunkPacer, AChunkTakesAboutTheTimeOfAStepOfStreams) {
  ChunkPacer pacer(512);
  EXPECT_EQ(pacer.chunk_tokens(), 16);  // nothing is known
  pacer.learn(0, 448, seconds_of(0, 448));
  // From here on streams never run alone.
  for (int i = 0; i < 20; ++i) {
    const std::int64_t chunk = pacer.chunk_tokens();
    pacer.learn(8, chunk, seconds_of(8, chunk));
  }
  EXPECT_NEAR(static_cast<double>(pacer.chunk_tokens()), 200, 20);
}

TEST(ChunkPacer, FollowsAModelThatBecomesSlower) {
  ChunkPacer pacer(512);
  pacer.learn(0, 448, seconds_of(0, 448));
  for (int i = 0; i < 20; ++i) pacer.learn(8, 0, seconds_of(8, 0));
  EXPECT_NEAR(static_cast<double>(pacer.chunk_tokens()), 200, 2);
  for (int i = 0; i < 40; ++i) pacer.learn(8, 0, 2 * seconds_of(8, 0));
  EXPECT_NEAR(static_cast<double>(pacer.chunk_tokens()), 400, 4);
}

TEST(ChunkPacer, NeverStopsAPromptAndNeverExceedsAStep) {
  ChunkPacer pacer(100);
  pacer.learn(0, 10, 10.0);
  pacer.learn(4, 0, 1e-3);
  EXPECT_EQ(pacer.chunk_tokens(), 1);
  for (int i = 0; i < 60; ++i) pacer.learn(4, 0, 1e3);
  EXPECT_EQ(pacer.chunk_tokens(), 100);
}

}  // namespace
}  // namespace tessera::test
