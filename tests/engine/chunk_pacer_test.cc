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

void run_beside(ChunkPacer& pacer, int steps) {
  for (int i = 0; i < steps; ++i) {
    const std::int64_t chunk = pacer.chunk_tokens();
    pacer.learn(8, chunk, seconds_of(8, chunk));
  }
}

TEST(ChunkPacer, AChunkTakesAboutOneAndAHalfTimesTheTimeOfAStepOfStreams) {
  ChunkPacer pacer(2048);
  EXPECT_EQ(pacer.chunk_tokens(), 0);  // how long do streams take alone?
  pacer.learn(0, 448, 1.0);            // the first step of all is slow, and says nothing
  run_beside(pacer, 30);               // from here on streams never run alone
  EXPECT_NEAR(static_cast<double>(pacer.chunk_tokens()), 300, 40);
}

// Each stream makes a step longer, and each token of a prompt too. Prompts never cease.
TEST(ChunkPacer, MoreStreamsAreMeasuredAnewThoughTheyNeverRunAlone) {
  ChunkPacer pacer(512);
  const auto run = [&](std::int64_t streams, int steps) {
    std::int64_t prompts = 0;
    for (int i = 0; i < steps; ++i) {
      const std::int64_t chunk = pacer.chunk_tokens();
      const double seconds = 2e-3 + 1e-3 * static_cast<double>(streams + chunk);
      const double longest = i > 20 ? 3 : 30;  // it has to find its measure first
      EXPECT_LE(seconds, longest * (2e-3 + 1e-3 * static_cast<double>(streams))) << i;
      pacer.learn(streams, chunk, seconds);
      prompts += chunk;
    }
    return static_cast<double>(prompts) / steps;
  };
  EXPECT_NEAR(run(1, 100), 4.5, 1.5);  // a step of 3 ms, and 4.5 ms of prompts
  EXPECT_NEAR(run(16, 100), 26, 5);    // 18 ms and 27 ms
  EXPECT_NEAR(run(2, 100), 6, 2);      // 4 ms and 6 ms
}

TEST(ChunkPacer, TheFirstLongPromptHardlyDelaysStreams) {
  ChunkPacer pacer(2048);
  for (int i = 0; i < 20; ++i) pacer.learn(1, 0, 2.5e-3);
  for (int i = 0; i < 50; ++i) {  // a CPU: a token of a prompt takes 0.8 ms
    const std::int64_t chunk = pacer.chunk_tokens();
    const double seconds = 2.5e-3 + 0.8e-3 * static_cast<double>(chunk);
    EXPECT_LE(seconds, 3 * 2.5e-3) << i;  // two ordinary steps later at most
    pacer.learn(1, chunk, seconds);
  }
  EXPECT_NEAR(static_cast<double>(pacer.chunk_tokens()), 5, 1);
}

TEST(ChunkPacer, OneSlowStepCostsLittleAndAShortPromptNothing) {
  ChunkPacer pacer(2048);
  run_beside(pacer, 40);
  const std::int64_t chunk = pacer.chunk_tokens();
  pacer.learn(8, 3, seconds_of(8, 3));
  EXPECT_EQ(pacer.chunk_tokens(), chunk);
  pacer.learn(8, chunk, 1.0);
  EXPECT_GE(pacer.chunk_tokens(), chunk / 2 - 1);
  run_beside(pacer, 10);
  EXPECT_NEAR(static_cast<double>(pacer.chunk_tokens()), static_cast<double>(chunk), 20);
}

TEST(ChunkPacer, NeverStopsAPromptAndNeverExceedsAStep) {
  ChunkPacer pacer(100);
  for (int i = 0; i < 20; ++i) pacer.learn(4, 0, 1e-3);
  for (int i = 0; i < 20; ++i) pacer.learn(4, pacer.chunk_tokens(), 1.0);
  EXPECT_EQ(pacer.chunk_tokens(), 1);
  for (int i = 0; i < 60; ++i) pacer.learn(4, pacer.chunk_tokens(), 1e-3);
  EXPECT_EQ(pacer.chunk_tokens(), 100);
}

}  // namespace
}  // namespace tessera::test
