// How many tokens of prompts a step may take beside streams in progress, so that these hardly
// notice: as many as make the step about two and a half times as long as without. The chunk grows
// while steps stay below that and shrinks where they exceed it, so nothing needs to be known about
// the device.
//
// How long a step takes without prompts has to be measured again when other streams run: while
// prompts keep coming, a step now and then goes without them. (Otherwise the time of the first few
// streams would be the measure for many, and chunks would shrink to nothing.)
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
  std::int64_t chunk_tokens() const { return measures_ ? 0 : static_cast<std::int64_t>(chunk_); }

  // What a step took: its streams, the tokens of prompts in it, and its time.
  void learn(std::int64_t streams, std::int64_t prompt_tokens, double seconds) {
    if (streams == 0) return;
    const bool others = are_others(streams);
    if (prompt_tokens == 0) {
      if (others && measured_streams_ > 0) {  // a chunk for them, until it is known better
        const double change = std::min(seconds / stream_seconds_, kMostGrowth);
        chunk_ = std::clamp(change * chunk_, 1.0, most_);
      }
      stream_seconds_ = others ? seconds : blended(stream_seconds_, seconds);
      measured_streams_ = streams;
      steps_ = 0;
      measures_ = false;
      return;
    }
    measures_ = others || ++steps_ >= kMostSteps;
    if (others) return;
    stream_seconds_ = std::min(stream_seconds_, seconds);
    const double wanted = kLengthening * stream_seconds_;
    const double change = std::clamp(wanted / seconds, kMostShrinking, kMostGrowth);
    // A step that was not full says nothing about a larger one.
    if (change > 1 && static_cast<double>(prompt_tokens) < std::floor(chunk_)) return;
    chunk_ = std::clamp(change * chunk_, 1.0, most_);
  }

 private:
  static constexpr double kLengthening = 2.5;    // of a step, by the prompts in it
  static constexpr double kFirstChunk = 4;       // small: nothing is known yet
  static constexpr double kMostGrowth = 1.5;     // from one step to the next
  static constexpr double kMostShrinking = 0.5;  // one slow step may be somebody else's fault
  static constexpr double kNewShare = 0.25;      // of a measurement in the average
  static constexpr double kOthers = 0.3;         // of the streams, that make it another step
  static constexpr int kMostSteps = 64;          // until the streams' own time is measured again

  static double blended(double average, double value) {
    return (1 - kNewShare) * average + kNewShare * value;
  }

  // More streams, or fewer, than those whose time is known.
  bool are_others(std::int64_t streams) const {
    const auto measured = static_cast<double>(measured_streams_);
    return std::abs(static_cast<double>(streams) - measured) > kOthers * measured;
  }

  double most_;
  double chunk_ = std::min(kFirstChunk, most_);
  double stream_seconds_ = 0;          // of a step of streams alone
  std::int64_t measured_streams_ = 0;  // in it
  int steps_ = 0;                      // since then
  bool measures_ = true;               // the next step
};

}  // namespace tessera::engine
