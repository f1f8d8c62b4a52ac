// How many tokens of prompts a step may take beside streams in progress, so that these hardly
// notice: about as many as take the time of one ordinary step. Learned from the steps so far.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tessera::engine {

class ChunkPacer {
 public:
  // `most`: tokens of a step.
  explicit ChunkPacer(std::int64_t most) : most_(most) {}

  // Tokens of prompts for the next step, if streams run in it.
  std::int64_t chunk_tokens() const {
    if (stream_seconds_ == 0 || token_seconds_ == 0) return std::min(kFirstChunk, most_);
    const double tokens = stream_seconds_ / token_seconds_;
    return static_cast<std::int64_t>(std::clamp(tokens, 1.0, static_cast<double>(most_)));
  }

  // What a step took: tokens of streams and of prompts in it, and its time.
  void learn(std::int64_t stream_tokens, std::int64_t prompt_tokens, double seconds) {
    const double prompts = static_cast<double>(prompt_tokens);
    if (prompt_tokens == 0) {
      blend(stream_seconds_, seconds);
    } else if (stream_tokens == 0) {
      if (prompt_tokens >= kLeastToLearn) blend(token_seconds_, seconds / prompts);
    } else if (stream_seconds_ == 0) {  // streams have never run alone: what the prompts leave
      stream_seconds_ = std::max(seconds - token_seconds_ * prompts, kLeastShare * seconds);
    } else if (token_seconds_ == 0) {
      token_seconds_ = std::max(seconds - stream_seconds_, kLeastShare * seconds) / prompts;
    } else {  // both were too long, or too short
      const double ratio = seconds / (stream_seconds_ + token_seconds_ * prompts);
      blend(stream_seconds_, ratio * stream_seconds_);
      blend(token_seconds_, ratio * token_seconds_);
    }
  }

 private:
  static constexpr std::int64_t kFirstChunk = 16;   // before anything was measured
  static constexpr std::int64_t kLeastToLearn = 4;  // fewer tokens say little about one
  static constexpr double kLeastShare = 0.1;        // of a step that either of the two takes
  static constexpr double kNewShare = 0.25;         // of a measurement in the average

  static void blend(double& average, double value) {
    average = average == 0 ? value : (1 - kNewShare) * average + kNewShare * value;
  }

  std::int64_t most_;
  double stream_seconds_ = 0;  // of a step of streams alone
  double token_seconds_ = 0;   // of one more token of a prompt
};

}  // namespace tessera::engine
