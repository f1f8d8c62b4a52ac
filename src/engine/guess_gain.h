// Whether guessing ahead gains anything, as measured: the time of a token in steps that may have
// guesses, beside that in steps without. All streams count, and all the work of guessing. (What a
// row costs, which decides how many guesses a stream makes, is only a straight line through the
// times of steps, and does not count what a draft model reads.)
//
//   plain | trial | gaining ...... | plain | trial | ...        while a trial is faster
//                 | paused | trial | paused ...... | trial | ...  while it is not: ever longer
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tessera::engine {

class GuessGain {
 public:
  // May the next step have guesses?
  bool allows() const { return phase_ == Phase::trial || phase_ == Phase::gaining; }

  // What a step of streams alone took, with what was done to guess, and the tokens that it made.
  void learn(std::int64_t streams, std::int64_t tokens, double seconds) {
    if (streams < 1 || tokens < 1) return;
    if (are_other_streams(streams)) begin_anew();
    streams_ = streams;
    seconds_ += seconds;
    tokens_ += static_cast<double>(tokens) / static_cast<double>(streams);
    if (++steps_ < length_) return;
    const double token_seconds = seconds_ / tokens_;
    switch (phase_) {
      case Phase::plain:
      case Phase::paused:
        plain_seconds_ = token_seconds;
        return begin(Phase::trial, kTrialSteps);
      case Phase::gaining:
        return begin(Phase::plain, kPlainSteps);
      case Phase::trial:
        if (token_seconds < plain_seconds_) {
          pause_ = kShortestPause;
          return begin(Phase::gaining, kGainingSteps);
        }
        begin(Phase::paused, pause_);
        pause_ = std::min(2 * pause_, kLongestPause);
    }
  }

 private:
  enum class Phase : std::uint8_t { plain, trial, gaining, paused };

  static constexpr std::int64_t kPlainSteps = 8, kTrialSteps = 16, kGainingSteps = 256;
  static constexpr std::int64_t kShortestPause = 64, kLongestPause = 2048;
  static constexpr double kOthers = 0.3;  // of the streams, that make it another step

  bool are_other_streams(std::int64_t streams) const {
    const auto before = static_cast<double>(streams_);
    return std::abs(static_cast<double>(streams) - before) > kOthers * before;
  }

  // Times of other streams are no measure. A pause goes on: each change would be a trial otherwise.
  void begin_anew() {
    if (phase_ != Phase::paused) return begin(Phase::plain, kPlainSteps);
    seconds_ = tokens_ = 0;
  }

  void begin(Phase phase, std::int64_t length) {
    phase_ = phase;
    length_ = length;
    steps_ = 0;
    seconds_ = tokens_ = 0;
  }

  Phase phase_ = Phase::plain;
  std::int64_t length_ = kPlainSteps, steps_ = 0;  // of the phase; so far
  double seconds_ = 0, tokens_ = 0;                // in it; tokens of each stream
  double plain_seconds_ = 0;                       // of a token without guesses
  std::int64_t streams_ = 0;
  std::int64_t pause_ = kShortestPause;
};

}  // namespace tessera::engine
