// Guessing goes on while it makes tokens faster, and rests ever longer while it does not.
#include "engine/guess_gain.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

namespace tessera::test {
namespace {

using engine::GuessGain;

// Steps of `streams` streams that take 1 s without guesses. With them, they make `tokens` tokens
// for each stream and take `seconds`.
class FakeSteps {
 public:
  double tokens = 1, seconds = 1, noise = 0;
  std::int64_t streams = 4;

  // The time of each token of a stream, over so many steps.
  double run(int steps) {
    double time = 0, made = 0;
    for (int i = 0; i < steps; ++i) {
      const bool guesses = gain_.allows();
      const double shake = 1 + noise * (std::uniform_real_distribution(-1.0, 1.0)(random_));
      const double took = (guesses ? seconds : 1) * shake;
      owed_ += guesses ? tokens : 1;
      const auto whole = static_cast<std::int64_t>(owed_);
      owed_ -= static_cast<double>(whole);
      gain_.learn(streams, whole * streams, took);
      time += took;
      made += static_cast<double>(whole);
      guessed_ += guesses ? 1 : 0;
    }
    return time / made;
  }
  int guessed() const { return guessed_; }

 private:
  GuessGain gain_;
  std::mt19937 random_{3};
  double owed_ = 0;
  int guessed_ = 0;
};

TEST(GuessGain, GuessesThatDoNotPayCostLittle) {
  FakeSteps steps;
  steps.tokens = 1.25;
  steps.seconds = 1.8;
  steps.noise = 0.1;
  EXPECT_LT(steps.run(500), 1.08);
  EXPECT_GT(steps.guessed(), 0);
  steps.run(2000);
  EXPECT_LT(steps.run(2000), 1.01);
}

TEST(GuessGain, GuessesThatPayAreMade) {
  FakeSteps steps;
  steps.tokens = 1.5;
  steps.seconds = 1.1;
  steps.noise = 0.1;
  EXPECT_LT(steps.run(1000), 1.05 * 1.1 / 1.5);
}

TEST(GuessGain, NoticesThatGuessesPayNowOrNoLonger) {
  FakeSteps steps;
  steps.tokens = 2;
  for (const double seconds : {3.0, 1.2, 3.0, 1.2}) {
    steps.seconds = seconds;
    steps.run(2500);
    const double best = seconds / steps.tokens < 1 ? seconds / steps.tokens : 1;
    EXPECT_LT(steps.run(1000), 1.06 * best) << seconds;
  }
}

// Streams come and go all the time; guessing never pays.
TEST(GuessGain, OtherStreamsDoNotEndAPause) {
  FakeSteps steps;
  steps.seconds = 2;
  steps.run(1000);
  const int before = steps.guessed();
  for (int i = 0; i < 200; ++i) {
    steps.streams = i % 2 == 0 ? 2 : 8;
    steps.run(5);
  }
  EXPECT_LE(steps.guessed() - before, 32);
}

}  // namespace
}  // namespace tessera::test
