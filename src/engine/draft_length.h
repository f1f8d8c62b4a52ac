// How many tokens to guess ahead of a stream. A guess is worth its row of the step as long as the
// chance that it is right is above what the row costs.
//
//   chance of guess i:  p^i, where p is how often guesses of this stream were right lately
//   cost of a guess:    c, the share of a step's time that a row more takes, and the guess itself
//                       where a model makes it, counted in tokens that the step would have made in
//                       that time
//
// So d guesses are made with p^d > c, and none if p <= c.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tessera::engine {

// The time of a step of streams by its rows, a + b * rows, learned from the steps so far.
class RowCost {
 public:
  void learn(std::int64_t rows, double seconds) {
    const double x = static_cast<double>(rows);
    for (double* sum : {&weight_, &x_, &y_, &xx_, &xy_}) *sum *= kKept;
    weight_ += 1;
    x_ += x;
    y_ += seconds;
    xx_ += x * x;
    xy_ += x * seconds;
  }

  // What one more row for each of this many streams costs, in tokens of each; guessing what is in
  // it takes `guess_seconds`. A row costs kUnknown until steps of different sizes have been seen.
  double in_tokens(std::int64_t streams, double guess_seconds = 0) const {
    if (weight_ == 0) return kUnknown;
    const double spread = weight_ * xx_ - x_ * x_;
    if (spread < kLeastSpread * weight_ * weight_) {
      return kUnknown + guess_seconds * weight_ / y_;
    }
    const double slope = std::max((weight_ * xy_ - x_ * y_) / spread, 0.0);
    const double step = y_ / weight_ + slope * (static_cast<double>(streams) - x_ / weight_);
    if (step <= 0) return kUnknown;
    return (slope * static_cast<double>(streams) + guess_seconds) / step;
  }

 private:
  static constexpr double kKept = 0.98;        // of the past, at each step
  static constexpr double kUnknown = 0.3;      // a CPU's share; a GPU's is far below
  static constexpr double kLeastSpread = 0.1;  // variance of the rows

  double weight_ = 0, x_ = 0, y_ = 0, xx_ = 0, xy_ = 0;  // sums over the steps
};

class DraftLength {
 public:
  // Guesses for the next step, given what each costs in tokens.
  std::int64_t next(double row_cost, std::int64_t most) {
    const double cost = std::clamp(row_cost, 0.01, 1.0);
    std::int64_t length = 0;
    for (double chance = right_; length < most && chance > cost; chance *= right_) ++length;
    // A stream that has become predictable is noticed by a guess now and then.
    if (length > 0) {
      idle_ = 0;
    } else if (++idle_ >= kProbeEvery) {
      idle_ = 0;
      length = std::min<std::int64_t>(1, most);
    }
    return length;
  }

  // Guesses up to the first wrong one were tested.
  void learn(std::int64_t drafted, std::int64_t accepted) {
    for (std::int64_t i = 0; i < accepted; ++i) right_ += kNewShare * (1 - right_);
    if (accepted < drafted) right_ -= kNewShare * right_;
  }

 private:
  static constexpr double kNewShare = 0.15;        // of one guess in the average
  static constexpr std::int64_t kProbeEvery = 32;  // tokens

  double right_ = 0.6;  // optimistic, so that a new stream is tried
  std::int64_t idle_ = 0;
};

}  // namespace tessera::engine
