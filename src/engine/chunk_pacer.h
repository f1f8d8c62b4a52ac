// How many tokens of prompts a step may take beside streams in progress, so that these hardly
// notice: as many as make the step about twice as long as without. The chunk grows while steps stay
// below that and shrinks where they exceed it, so nothing needs to be known about the device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tessera::engine {

class ChunkPacer {
 public:
  // `most`: tokens of a step.
  explicit ChunkPacer(std::int64_t most) : most_(static_cast<double>(most)) {}

  // Tokens of prompts for the next step, if streams run in it.
  std::int64_t chunk_tokens() const { return static_cast<std::int64_t>(chunk_); }

  // What a step took: tokens of streams and of prompts in it, and its time.
  void learn(std::int64_t stream_tokens, std::int64_t prompt_tokens, double seconds) {
    if (stream_tokens == 0) return;
    if (prompt_tokens == 0) {
      stream_seconds_ = stream_seconds_ == 0 ? seconds : blended(stream_seconds_, seconds);
      return;
    }
    // Streams that have never run alone take at most what the shortest step took.
    if (stream_seconds_ == 0 || seconds < stream_seconds_) stream_seconds_ = seconds;
    const double wanted = kLengthening * stream_seconds_;
    const double change = std::clamp(wanted / seconds, kMostShrinking, kMostGrowth);
    // A step that was not full says nothing about a larger one.
    if (change > 1 && static_cast<double>(prompt_tokens) < std::floor(chunk_)) return;
    chunk_ = std::clamp(change * chunk_, 1.0, most_);
  }

 private:
  static constexpr double kLengthening = 2;      // of a step, by the prompts in it
  static constexpr double kFirstChunk = 4;       // small: nothing is known yet
  static constexpr double kMostGrowth = 1.5;     // from one step to the next
  static constexpr double kMostShrinking = 0.5;  // one slow step may be somebody else's fault
  static constexpr double kNewShare = 0.25;      // of a measurement in the average

  static double blended(double average, double value) {
    return (1 - kNewShare) * average + kNewShare * value;
  }

  double most_;
  double chunk_ = std::min(kFirstChunk, most_);
  double stream_seconds_ = 0;  // of a step of streams alone
};

}  // namespace tessera::engine
