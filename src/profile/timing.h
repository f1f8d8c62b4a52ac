// Times of a function that is run again and again: the median counts, and the spread is shown.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace tessera::profile {

struct Timing {
  double median = 0, fastest = 0, slowest = 0;  // seconds

  static Timing of(std::vector<double> seconds) {
    std::sort(seconds.begin(), seconds.end());
    return {seconds[seconds.size() / 2], seconds.front(), seconds.back()};
  }
};

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The first round is a warm-up, and not counted.
template <typename Run>
Timing time_rounds(int rounds, Run&& run) {
  std::vector<double> seconds;
  for (int round = -1; round < rounds; ++round) {
    const Clock::time_point start = Clock::now();
    run();
    if (round >= 0) seconds.push_back(seconds_since(start));
  }
  return Timing::of(std::move(seconds));
}

}  // namespace tessera::profile
